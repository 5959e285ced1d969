"""Which pair of a prefill and a decode engine is best, among those that go together.

What must be equal: `engines/kv_shape.py`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One engine that may be half of a pair."""

    name: str
    """Its endpoint."""
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
    fits: Callable[[str, str], bool],
    predict_transfer_s: Callable[[str, str], float],
) -> Pair | None:
    """Return the pair with the lowest sum of costs; None: no two with room fit. Ties go by name.

    `fits`: whether the KV of the first can go to the second; asked of two different ones.
    Topology enters by the learned transfer times: a pair in one rack is faster than one across two.
    """
    takers = [half for half in decodes if half.has_room]
    best: Pair | None = None
    for giver in prefills:
        if not giver.has_room:
            continue
        for taker in takers:
            if giver.name == taker.name or not fits(giver.name, taker.name):
                continue
            transfer_s = predict_transfer_s(giver.name, taker.name)
            cost_s = giver.cost_s + transfer_s + taker.cost_s
            found = Pair(prefill=giver.name, decode=taker.name, transfer_s=transfer_s, cost_s=cost_s)
            if best is None or (cost_s, found.prefill, found.decode) < (best.cost_s, best.prefill, best.decode):
                best = found
    return best
