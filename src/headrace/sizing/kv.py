"""Bytes of the KV cache: of one token on one device, and of one whole sequence, by kind of layer."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from headrace.sizing.architecture import Architecture, CacheLayers, LayerKind

KV_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8_e4m3": 1.0,
        "fp8_e5m2": 1.0,
        "nvfp4": 0.5 + 1 / 16,
        "q8_0": 34 / 32,
        "q4_0": 18 / 32,
    }
)
"""Bytes an element by number format. The last two are ggml's blocks: 32 values and their fp16 scale (ggml-common.h)."""


def element_bytes(architecture: Architecture, kv_dtype: str) -> float:
    """Return bytes an element; `auto` is the computing precision, which is 2 bytes however weights are stored."""
    return KV_BYTES["bf16"] if kv_dtype == "auto" else KV_BYTES[kv_dtype]


def heads_on_device(kv_heads: int, tensor: int) -> int:
    """Return the KV heads that one device holds: each is copied where there are more devices than heads."""
    return max(1, math.ceil(kv_heads / tensor))


def token_bytes(architecture: Architecture, *, kv_dtype: str = "auto", tensor: int = 1, pipeline: int = 1) -> float:
    """Return what one token takes on one device in all layers that keep tokens, windows as if they kept all."""
    size = element_bytes(architecture, kv_dtype)
    total = sum(group.count * _layer_token_elements(group, tensor) for group in architecture.cache)
    return total * size / pipeline


def _layer_token_elements(group: CacheLayers, tensor: int) -> int:
    if group.kind is LayerKind.LATENT:
        return group.elements_per_token
    return heads_on_device(group.kv_heads, tensor) * (group.key_dim + group.value_dim)


def sequence_bytes(
    architecture: Architecture,
    tokens: int,
    *,
    kv_dtype: str = "auto",
    tensor: int = 1,
    pipeline: int = 1,
    block_tokens: int = 16,
    step_tokens: int = 0,
) -> float:
    """Return what one sequence of `tokens` takes on one device, in whole blocks.

    `step_tokens`: a window's layers hold what a step computes beside the window itself.
    """
    size = element_bytes(architecture, kv_dtype)
    total = 0.0
    for group in architecture.cache:
        if group.kind is LayerKind.RECURRENT:
            total += group.count * group.state_bytes / tensor
            continue
        held = tokens
        if group.window_tokens is not None:
            held = min(tokens, group.window_tokens - 1 + max(1, step_tokens))
        blocks = math.ceil(held / block_tokens)
        total += group.count * blocks * block_tokens * _layer_token_elements(group, tensor) * size
    return total / pipeline
