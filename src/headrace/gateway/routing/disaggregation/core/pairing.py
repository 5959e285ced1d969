"""Which prefill and decode engines go together, and which pair is best.

What must be equal is what the bytes of the KV depend on: engine and version, model and revision, KV number format,
block size, layout, pipeline stages. Tensor-parallel sizes follow the engine's rule.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import TensorRule


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What an engine's KV looks like. None: not known, which fits everything."""

    engine: EngineKind
    version: str | None = None
    model: str | None = None
    revision: str | None = None
    kv_dtype: str | None = None
    block_tokens: int | None = None
    layout: str | None = None
    """The engine's own word, such as vLLM's HND."""
    tensor: int = 1
    pipeline: int = 1


EQUAL_MEMBERS = ("engine", "version", "model", "revision", "kv_dtype", "block_tokens", "layout", "pipeline")


def find_mismatch(prefill: KvShape, decode: KvShape, rule: TensorRule) -> str | None:
    """Return why the two cannot hand KV over, as words for `kv_layout_mismatch`; None: nothing speaks against it."""
    for name in EQUAL_MEMBERS:
        left, right = getattr(prefill, name), getattr(decode, name)
        if left is not None and right is not None and left != right:
            return f"{name} is {left} at prefill and {right} at decode"
    small, large = sorted((prefill.tensor, decode.tensor))
    if rule is TensorRule.EQUAL and small != large:
        return f"tensor is {prefill.tensor} at prefill and {decode.tensor} at decode: {prefill.engine} needs them equal"
    if large % small:
        return (
            f"tensor is {prefill.tensor} at prefill and {decode.tensor} at decode: {prefill.engine} needs one to "
            "divide the other"
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One engine that may be half of a pair."""

    name: str
    """Its endpoint."""
    shape: KvShape
    cost_s: float
    """Prefill: predicted TTFT there. Decode: its queue and first step, and what one more request costs the others."""
    has_room: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A choice, with what it was made of."""

    prefill: str
    decode: str
    transfer_s: float
    cost_s: float
    """All of it."""


def choose_pair(
    prefills: Iterable[Half],
    decodes: Iterable[Half],
    *,
    rule: TensorRule,
    predict_transfer_s: Callable[[str, str], float],
) -> Pair | None:
    """Return the pair with the lowest sum of costs; None: no two with room fit. Ties go by name.

    Topology enters by the learned transfer times: a pair in one rack is faster than one across two.
    """
    takers = [half for half in decodes if half.has_room]
    best: Pair | None = None
    for giver in prefills:
        if not giver.has_room:
            continue
        for taker in takers:
            if giver.name == taker.name or find_mismatch(giver.shape, taker.shape, rule):
                continue
            transfer_s = predict_transfer_s(giver.name, taker.name)
            cost_s = giver.cost_s + transfer_s + taker.cost_s
            found = Pair(prefill=giver.name, decode=taker.name, transfer_s=transfer_s, cost_s=cost_s)
            if best is None or (cost_s, found.prefill, found.decode) < (best.cost_s, best.prefill, best.decode):
                best = found
    return best
