"""Stands in for SGLang's kernel package on a CPU without AMX, where its own wheel needs CUDA. For tests only.

What SGLang 0.5.23 really calls there is done here in plain PyTorch; every other kernel can be imported and fails, with
its name, when it is called.
"""

from collections.abc import Callable
from typing import NoReturn

import torch

_OPERATORS = torch.library.Library("sgl_kernel", "DEF")
"""Kept alive: the operators end with it."""


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write each request's new cache places into its row: `out_cache_loc` holds them for all requests in order."""
    lengths = (end_offset - start_offset).tolist()
    places = torch.split(out_cache_loc[: sum(lengths)].to(req_to_token.dtype), lengths)
    for row, start, part in zip(req_pool_indices.tolist(), start_offset.tolist(), places, strict=True):
        req_to_token[row, start : start + len(part)] = part


def _define(signature: str, function: Callable[..., object]) -> None:
    _OPERATORS.define(signature)
    _OPERATORS.impl(signature.partition("(")[0], function, "CompositeExplicitAutograd")


_define("init_cpu_threads_env(str cores) -> str", lambda cores: f"cores {cores} are not bound by this stand-in")
_define("initialize(int size, int rank) -> ()", lambda size, rank: None)


def kernel_named(name: str) -> Callable[..., NoReturn]:
    """A kernel that SGLang may import, and that fails when it is called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def absent(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: this stand-in for CPU tests does not have it")

    absent.__name__ = name
    return absent
