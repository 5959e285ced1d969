"""A step clock from measurements: a curve over the rows of a step, and prices for what attention reads.

Rows are the positions that a step computes, of prompts and of generating sequences alike: matrix products do not know
the difference. The curve is taken as it was measured, since real kernels are neither linear nor even monotone in it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CurveShare:
    """Where a number of rows lies between two points of the curve: the share of each."""

    left: int
    right: int
    right_ratio: float
    """Above 1 beyond the last point: the last line goes on, if it rises."""


def share_of(knots: Sequence[int], rows: int) -> CurveShare:
    """Return between which knots a number of rows lies. Below the first, the first; one knot alone is a constant."""
    index = bisect_left(knots, rows)
    if index == 0 or len(knots) == 1:
        return CurveShare(0, 0, 0.0)
    right = min(index, len(knots) - 1)
    left = right - 1
    return CurveShare(left, right, (rows - knots[left]) / (knots[right] - knots[left]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveClock:
    """Units: seconds; each price per what its name says."""

    knots: tuple[int, ...]
    """Numbers of rows, growing."""
    step_times_s: tuple[float, ...]
    """What a step of so many rows takes, attention over long contexts aside."""
    decode_sequence_s: float = 0.0
    """More of it for each sequence that generates."""
    mixed_step_s: float = 0.0
    """More of it for a step that holds both prompts and generating sequences: some engines compute them apart."""
    prefill_pair_s: float = 0.0
    """Per (query, key) pair of a prompt's attention."""
    kv_token_s: float = 0.0
    """Per token of context that generating sequences read."""

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        share = share_of(self.knots, prefill_tokens + decode_tokens)
        left_s, right_s = self.step_times_s[share.left], self.step_times_s[share.right]
        rows_s = left_s + share.right_ratio * (right_s - left_s)
        if share.right_ratio > 1.0:
            rows_s = max(rows_s, right_s)
        return (
            rows_s
            + self.decode_sequence_s * decode_sequences
            + (self.mixed_step_s if prefill_tokens and decode_sequences else 0.0)
            + self.prefill_pair_s * prefill_pairs
            + self.kv_token_s * decode_kv_tokens
        )
