"""How fast a sequence advances when drafts are accepted: drawn from its request id and the model's seed."""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from math import log

from headrace.simulation.model import Speculation
from headrace.simulation.sequence import LiveSequence

_MASK = (1 << 64) - 1


def uniform_numbers(seed: int, name: str) -> Iterator[float]:
    """Yield numbers in (0, 1], the same ones for the same seed and name everywhere.

    Source: the SplitMix64 generator (Steele, Lea, Flood 2014).
    """
    start = blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "big")).digest()
    state = int.from_bytes(start, "big")
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield ((mixed ^ (mixed >> 31)) + 1) / (1 << 64)


def accepted_drafts(speculation: Speculation, uniform: float) -> int:
    """Return how many drafts match, when each does so with the acceptance ratio and the first mismatch ends it."""
    ratio = speculation.acceptance_ratio
    if ratio <= 0.0:
        return 0
    if ratio >= 1.0:
        return speculation.draft_tokens
    return min(speculation.draft_tokens, int(log(uniform) / log(ratio)))


def draw_pace(speculation: Speculation, sequence: LiveSequence) -> Sequence[int]:
    """Return the tokens gained after 0, 1, 2, ... steps, up to all that remain."""
    remaining = sequence.output_tokens - sequence.emitted
    numbers = uniform_numbers(speculation.seed, f"{sequence.request_id}:{sequence.emitted}")
    pace, gained = array("q", (0,)), 0
    while gained < remaining:
        gained = min(remaining, gained + 1 + accepted_drafts(speculation, next(numbers)))
        pace.append(gained)
    return pace
