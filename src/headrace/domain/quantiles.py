"""Quantiles, of values that were measured and of histograms: one definition each, wherever one is shown or decided by.

`share` is between 0 and 1: 0.99 is the 99th percentile. None: nothing was measured.
"""

from collections.abc import Iterable, Sequence
from math import ceil, isinf

ROUNDING = 1e-9
"""0.07 * 100 is 7.000000000000001: so little above a rank is that rank."""


def nearest_rank(ordered: Sequence[float], share: float) -> float | None:
    """Return the least of the values, in rising order, at or below which `share` of them lie: one that was measured."""
    if not ordered:
        return None
    return ordered[max(0, ceil(share * len(ordered) - ROUNDING) - 1)]


def interpolated(buckets: Iterable[tuple[float, float]], count: float, share: float) -> float | None:
    """Estimate as Prometheus does: linear within a bucket, the last finite bound beyond it.

    `buckets`: upper bound and observations at or below it, rising.
    """
    found = _bucket(buckets, count, share)
    if found is None:
        return None
    lower, upper, below, reached = found
    return lower if isinf(upper) else lower + (upper - lower) * (share * count - below) / (reached - below)


def upper_bound(buckets: Iterable[tuple[float, float]], count: float, share: float) -> float | None:
    """Return the bound that at least `share` of the observations do not exceed; None also where only infinity is one.

    `buckets` as of `interpolated`.
    """
    found = _bucket(buckets, count, share)
    return None if found is None or isinf(found[1]) else found[1]


def _bucket(
    buckets: Iterable[tuple[float, float]], count: float, share: float
) -> tuple[float, float, float, float] | None:
    """The bucket of a rank: its bounds, and the observations below it and up to its end."""
    rank, below, lower = share * count, 0.0, 0.0
    if not count:
        return None
    for upper, reached in buckets:
        if reached >= rank and reached > below:
            return lower, upper, below, reached
        below, lower = reached, upper
    return None
