"""A declared memory fraction in an engine's own meaning (docs/launch-lines.md has the formulas).

With T the device's memory, W the weights on it, A what activations and graphs need (working memory), K the KV cache:
`total` = (W + K + A) / T (vLLM), `static` = (W + K) / T (SGLang), `free` = K / (T - W - A) (TensorRT-LLM).
"""

import math
from dataclasses import dataclass
from typing import Literal

from headrace.declaration.engine_options import Memory

Meaning = Literal["total", "static", "free"]
WORDS: dict[Meaning, str] = {
    "total": "of all memory, for everything",
    "static": "of all memory, for weights and KV cache",
    "free": "of what weights and working memory leave, for the KV cache",
}


class CannotConvertError(Exception):
    """Facts are missing, or leave no room; `key` is the one to declare or change."""

    def __init__(self, key: tuple[str, ...], message: str, hint: str) -> None:
        super().__init__(message)
        self.key, self.message, self.hint = key, message, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A fraction for one engine."""

    fraction: float
    note: str | None
    """How it came about; None where it is the declared one."""


def convert_fraction(memory: Memory, meaning: Meaning, *, weight_bytes: int | None, devices: int) -> Converted | None:
    """Return `memory.fraction` in an engine's `meaning`, None where none is declared.

    `weight_bytes` of the whole model; `devices` hold it in equal parts.

    Raises: CannotConvertError.
    """
    if memory.fraction is None:
        return None
    if memory.of == meaning:
        return Converted(fraction=memory.fraction, note=None)
    total, working = _require(memory.device_bytes, "device_bytes"), _require(memory.working_bytes, "working_bytes")
    needs_weights = "free" in (memory.of, meaning)
    if needs_weights and weight_bytes is None:
        raise CannotConvertError(
            ("memory", "of"),
            f"needs the size of the weights to become a share {WORDS[meaning]}",
            "Declare models.<name>.weight_bytes, or fetch the model first (`headrace models --fetch`).",
        )
    weights = math.ceil((weight_bytes or 0) / devices) if needs_weights else 0
    room = _kv_and_weights(memory.fraction, memory.of, total, weights, working)
    fraction = {
        "total": (room + working) / total,
        "static": room / total,
        "free": (room - weights) / max(1, total - weights - working),
    }[meaning]
    if not 0 < fraction <= 1:
        raise CannotConvertError(
            ("memory", "fraction"),
            f"leaves no KV cache: as a share {WORDS[meaning]} it is {fraction:.3f}",
            "Raise it, lower memory.working_bytes, or spread the model over more devices.",
        )
    fraction = math.floor(fraction * 1000) / 1000
    parts = f"device {_gib(total)}, working memory {_gib(working)}"
    parts += f", weights {_gib(weights)} on each device" if needs_weights else ""
    note = (
        f"memory.fraction {memory.fraction:g} {WORDS[memory.of]} is {fraction:g} {WORDS[meaning]}, "
        f"which is what the engine takes ({parts})"
    )
    return Converted(fraction=fraction, note=note)


def _kv_and_weights(fraction: float, of: Meaning, total: int, weights: int, working: int) -> float:
    """Return W + K."""
    if of == "total":
        return fraction * total - working
    if of == "static":
        return fraction * total
    return weights + fraction * (total - weights - working)


def _require(found: int | None, key: str) -> int:
    if found is None:
        raise CannotConvertError(
            ("memory", "of"),
            f"must be converted for this engine, which needs memory.{key}",
            f"Declare memory.{key}, or declare the fraction in the engine's own meaning.",
        )
    return found


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
