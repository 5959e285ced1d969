"""vLLM on a CPU: `python -m tests.real.vllm serve --port P`."""

from tests.real.vllm.recipe import RECIPE

__all__ = ["RECIPE"]
