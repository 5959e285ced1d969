"""llama.cpp's KV cache, exactly: cells of every layer for every sequence, padded as it pads them.

Source: llama.cpp b11434, `llama-context.cpp` (context of a sequence), `llama-kv-cache-iswa.cpp` (cells of windows).
"""

import math

from headrace.sizing.architecture import Architecture, LayerKind
from headrace.sizing.kv import KV_BYTES

CELL_PADDING = 256
"""Cells of one sequence are padded to this. Source: `GGML_PAD(n_ctx_seq, 256)`."""


def kv_bytes_per_token(architecture: Architecture, *, kv_dtype: str = "fp16") -> float:
    """Return the bytes of one cell in all layers; llama.cpp's own default is f16."""
    elements = sum(group.count * group.elements_per_token for group in architecture.cache)
    return elements * KV_BYTES["fp16" if kv_dtype == "auto" else kv_dtype]


def kv_cache_bytes(
    architecture: Architecture, *, context_tokens: int, sequences: int, step_tokens: int, kv_dtype: str = "fp16"
) -> int:
    """Return the size of the whole cache: `context_tokens` for each of `sequences`, `step_tokens` being --ubatch-size.

    Layers with a window keep the window and one step, recurrent ones their state.
    """
    size = KV_BYTES["fp16" if kv_dtype == "auto" else kv_dtype]
    total = 0.0
    for group in architecture.cache:
        if group.kind is LayerKind.RECURRENT:
            total += group.count * group.state_bytes * sequences
            continue
        cells = _padded(context_tokens)
        if group.window_tokens is not None:
            cells = min(cells, _padded(group.window_tokens + step_tokens))
        total += group.count * cells * sequences * group.elements_per_token * size
    return round(total)


def _padded(cells: int) -> int:
    return math.ceil(cells / CELL_PADDING) * CELL_PADDING
