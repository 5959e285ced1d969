"""SGLang on a CPU: `python -m tests.real.sglang serve --port P`."""

from tests.real.sglang.recipe import RECIPE

__all__ = ["RECIPE"]
