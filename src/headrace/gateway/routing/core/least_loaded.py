"""Picks the candidate with the fewest requests in flight; equals take turns."""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Loaded(Protocol):
    """Anything that has requests in flight."""

    in_flight: int


LoadedT = TypeVar("LoadedT", bound=Loaded)


def pick_least_loaded(candidates: Sequence[LoadedT], turn: int) -> LoadedT:
    """Return the least loaded of `candidates` (at least one); `turn` grows by one each time, to rotate among equals."""
    count = len(candidates)
    best = candidates[turn % count]
    for offset in range(1, count):
        candidate = candidates[(turn + offset) % count]
        if candidate.in_flight < best.in_flight:
            best = candidate
    return best
