"""Meters of one process, beyond what the contract suite asks of every kind."""

import pytest

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.local_meters import LocalMeters, SlotMeter, WallOffset, WindowMeter

WINDOW = LimitId(Level.TENANT, "t", Unit.INPUT_TOKENS_PER_MIN)
SLOTS = LimitId(Level.TENANT, "t", Unit.CONCURRENT_REQUESTS)
DAY = LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY)


def test_a_window_counts_at_least_sixty_seconds_and_at_most_half_a_second_more() -> None:
    """Neither more than the limit in any minute, nor less than 99 % of it."""
    for start_s in (1000.0, 1000.2, 1000.49, 1000.5):
        meter = WindowMeter(WINDOW, 10)
        meter.take(10, start_s)
        assert meter.used(start_s + 60.0) == 10
        assert meter.used(start_s + 60.51) == 0


def test_a_window_knows_when_it_is_whole_again() -> None:
    """The newest use is what it waits for."""
    meter = WindowMeter(WINDOW, 10)
    assert meter.reset_s(100.0) == 0.0
    meter.take(1, 100.0)
    meter.take(1, 130.0)
    assert 59.0 < meter.reset_s(131.0) <= 60.5


def test_what_is_counted_late_counts_when_it_came() -> None:
    """A request that was received half a second ago, and others of that moment, leave the window together."""
    meter = WindowMeter(WINDOW, 10)
    assert meter.try_take(2, 100.9)
    assert meter.try_take(3, 101.1)
    assert meter.try_take(4, 100.8)
    assert not meter.try_take(2, 100.8)
    meter.give_back(1, 100.8, 102.0)
    assert meter.used(102.0) == 8
    assert meter.used(161.2) == 3
    meter.give_back(3, 101.1, 161.2)
    assert (meter.used(161.2), meter.is_unused) == (0, True)


def test_slots_learn_how_long_they_are_held() -> None:
    """The wait that is named for a full limit is the time until the next slot, on average."""
    meter = SlotMeter(SLOTS, 4)
    for turn in range(40):
        meter.take(1, 100.0 * turn)
        meter.give_back(1, 100.0 * turn, 100.0 * turn + 8.0)
    meter.take(4, 5000.0)
    assert meter.wait_s(1, 5000.0) == pytest.approx(2.0, rel=0.01)
    assert meter.reset_s(5000.0) == pytest.approx(8.0, rel=0.01)


def test_a_clock_that_is_set_moves_the_day_with_it() -> None:
    """Days are those of the wall clock, whatever it said when the gateway started."""
    wall = WallOffset(1_000_000.0, 100.0)  # 13:46:40 UTC
    day = LocalMeters(wall).meter(DAY, 10, 100.0)
    day.take(10, 100.0)
    wall.follow(1_000_000.0 + 40_000.0, 101.0)
    assert (day.used(101.0), day.wait_s(10, 101.0)) == (0, 0.0)


def test_what_was_taken_yesterday_is_not_given_back_today() -> None:
    """A request that runs over midnight leaves the new day's budget alone."""
    day = LocalMeters(WallOffset(1_000_000.0, 100.0)).meter(DAY, 10, 100.0)
    day.take(8, 100.0)
    tomorrow_s = 100.0 + 86_400.0
    day.charge(5, tomorrow_s)
    day.give_back(8, 100.0, tomorrow_s)
    assert day.used(tomorrow_s) == 5


def test_meters_are_shown_with_their_use() -> None:
    """A line in a debugger says how much of what is used."""
    window, slots = WindowMeter(WINDOW, 10), SlotMeter(SLOTS, 2)
    window.take(3, 1.0)
    assert (repr(window), repr(slots)) == (
        "WindowMeter(3 of 10, input_tokens_per_min)",
        "SlotMeter(0 of 2, concurrent_requests)",
    )
