"""Percentiles that are shown are values that were measured, or bounds that hold."""

from math import inf

import pytest

from headrace.domain.quantiles import interpolated, nearest_rank, upper_bound

BUCKETS = ((0.1, 4.0), (0.2, 4.0), (1.0, 9.0), (inf, 10.0))
"""Four below 0.1, none to 0.2, five to 1, one beyond."""


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (20, 0.95, 19), (100, 0.99, 99), (100, 0.07, 7), (101, 0.99, 100)],
)
def test_the_nearest_rank_is_a_value_that_was_measured(count: int, share: float, rank: int) -> None:
    """The least at or below which the share of all values lies; rounding moves none of them."""
    assert nearest_rank([float(number + 1) for number in range(count)], share) == rank


def test_the_ends_are_the_least_and_the_most() -> None:
    """Shares of nothing and of everything."""
    assert (nearest_rank([3.0, 5.0], 0.0), nearest_rank([3.0, 5.0], 1.0)) == (3.0, 5.0)


def test_of_nothing_there_is_no_percentile() -> None:
    """Not 0, which would look like a very good one."""
    assert nearest_rank([], 0.5) is None
    assert interpolated((), 0, 0.5) is None
    assert interpolated(((0.1, 0.0), (inf, 0.0)), 0, 0.5) is None
    assert upper_bound(((0.1, 0.0), (inf, 0.0)), 0, 0.5) is None


@pytest.mark.parametrize(
    ("share", "value", "bound"),
    [(0.2, 0.05, 0.1), (0.4, 0.1, 0.1), (0.5, 0.2 + 0.8 / 5, 1.0), (0.9, 1.0, 1.0), (0.95, 1.0, None)],
)
def test_of_a_histogram_it_is_estimated_or_bounded(share: float, value: float, bound: float | None) -> None:
    """As Prometheus would, or the bound of its bucket; beyond the last there is no bound, and the estimate is too
    low."""
    assert interpolated(BUCKETS, 10, share) == pytest.approx(value)
    assert upper_bound(BUCKETS, 10, share) == bound
