"""The command line of `tests.real.sglang`."""

from tests.real.command import main
from tests.real.sglang import RECIPE

main(RECIPE)
