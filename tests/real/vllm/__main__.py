"""The command line of `tests.real.vllm`."""

from tests.real.command import main
from tests.real.vllm import RECIPE

main(RECIPE)
