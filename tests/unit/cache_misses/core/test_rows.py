"""Misses counted over the last hour."""

from headrace.cache_misses.core.judge import Miss
from headrace.cache_misses.core.rows import LEAST_REQUESTS, MOST_ROWS, SLICE_S, MissRows, RowKey
from headrace.domain.miss_status import MissCause

MISS = Miss(cause=MissCause.EVICTED, tokens_lost=100, family=7, difference=None, token_offset=3)


def key(family: int = 7) -> RowKey:
    return RowKey("m", "t", family, MissCause.EVICTED, "")


def test_what_happens_often_enough_is_shown_as_a_rate() -> None:
    """Below three requests there is no finding; at three, tokens an hour are scaled to what was not looked at."""
    rows = MissRows(0.0)
    for _ in range(LEAST_REQUESTS - 1):
        rows.add(key(), MISS, "p/0", scale=2.0, now_mono_s=1.0)
    assert list(rows.shown(1.0)) == []
    rows.add(key(), MISS, "p/1", scale=2.0, now_mono_s=1.0)
    (row,) = rows.shown(1.0)
    assert (row.requests, row.tokens_lost, row.endpoint, row.alike) == (3, 300, "p/1", "00000000")
    assert row.tokens_lost_per_hour == 600 * 3600 / SLICE_S
    assert rows.by_cause == {MissCause.EVICTED: (3, 300)}
    (row,) = rows.shown(3599.0)
    assert row.tokens_lost_per_hour == round(600 * 3600 / 3599, 1)


def test_an_hour_later_nothing_is_left_but_the_metrics() -> None:
    """What is older than an hour no longer counts, however long nobody asked."""
    for later in (3600.0, 3900.0, 90_000.0):
        rows = MissRows(0.0)
        for _ in range(5):
            rows.add(key(), MISS, "p/0", scale=1.0, now_mono_s=1.0)
        assert list(rows.shown(later)) == []
        assert rows.by_cause == {MissCause.EVICTED: (5, 500)}


def test_rows_are_bounded() -> None:
    """The row that was idle longest is forgotten."""
    rows = MissRows(0.0)
    for family in range(MOST_ROWS + 1):
        for _ in range(3):
            rows.add(key(family), MISS, "p/0", scale=1.0, now_mono_s=1.0)
    assert len(list(rows.shown(1.0))) == MOST_ROWS
