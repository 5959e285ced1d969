"""The checks that every kind of meter must pass: local ones, and those that lease their share of a common limit.

To plug a kind in, write a class with the members of `MetersUnderTest` and run `check(meters)` for each of CHECKS, with
fresh meters each time. tests/contract/test_meters.py is the example. Times are the checks' own: nothing sleeps.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Protocol

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.meter import Meter, MeterFactory

NOON_AT = 1_790_251_200.0
"""Thursday, 24 September 2026, 12:00 UTC."""
NOON_MONO_S = 5000.0
"""The monotonic time of that moment: all checks begin then."""
DAY_START_AT = NOON_AT - 43200.0
MONTH_START_AT = NOON_AT - 43200.0 - 23 * 86400.0


class MetersUnderTest(Protocol):
    """One process's meters of a kind. `settle` lets whoever they share with answer (leases arrive); local ones pass."""

    factory: MeterFactory

    def settle(self, now_mono_s: float) -> None: ...

    def follow_wall(self, now_at: float, now_mono_s: float) -> None: ...


def _meter(meters: MetersUnderTest, unit: Unit, amount: int, name: str = "t") -> Meter:
    meter = meters.factory.meter(LimitId(Level.TENANT, name, unit), amount, NOON_MONO_S)
    # A first request makes a shared meter ask for its share.
    meter.wait_s(min(1, amount), NOON_MONO_S)
    meters.settle(NOON_MONO_S)
    return meter


def _fill(meters: MetersUnderTest, meter: Meter, now_mono_s: float, step: int = 1) -> int:
    """Take as often as is allowed; how much that was."""
    taken = 0
    while True:
        if meter.wait_s(step, now_mono_s) > 0.0:
            meters.settle(now_mono_s)
            if meter.wait_s(step, now_mono_s) > 0.0:
                return taken
        meter.take(step, now_mono_s)
        taken += step


def _has_room(meters: MetersUnderTest, meter: Meter, amount: int, now_mono_s: float) -> bool:
    """Whether `amount` may be taken, if need be after those have answered with whom the limit is shared."""
    if meter.wait_s(amount, now_mono_s) > 0.0:
        meters.settle(now_mono_s)
    return meter.wait_s(amount, now_mono_s) == 0.0


def check_limit_of_zero(meters: MetersUnderTest) -> None:
    """A limit of 0 never grants, and says so."""
    for unit in Unit:
        meter = _meter(meters, unit, 0)
        assert meter.wait_s(1, NOON_MONO_S) == float("inf")
        assert meter.wait_s(0, NOON_MONO_S) == 0.0


def check_exactly_the_limit(meters: MetersUnderTest) -> None:
    """The limit is granted whole, and one more is not."""
    for unit in Unit:
        meter = _meter(meters, unit, 10)
        assert _fill(meters, meter, NOON_MONO_S) == 10
        assert meter.used(NOON_MONO_S) == 10
        assert meter.wait_s(1, NOON_MONO_S) > 0.0


def check_more_than_the_limit(meters: MetersUnderTest) -> None:
    """What is larger than the whole limit never fits."""
    for unit in Unit:
        assert _meter(meters, unit, 10).wait_s(11, NOON_MONO_S) == float("inf")


def check_window(meters: MetersUnderTest) -> None:
    """No 60 seconds hold more than the limit, wherever they begin; a second later there is room again."""
    meter = _meter(meters, Unit.INPUT_TOKENS_PER_MIN, 100)
    for second in range(0, 50, 10):
        meter.take(20, NOON_MONO_S + second)
    assert meter.wait_s(1, NOON_MONO_S + 59.9) > 0.0
    later = NOON_MONO_S + 61.0
    meters.settle(later)
    assert _fill(meters, meter, later) == 20
    assert meter.used(later) == 100


def check_wait_is_enough(meters: MetersUnderTest) -> None:
    """After the wait that was named, what was asked for is there."""
    meter = _meter(meters, Unit.REQUESTS_PER_MIN, 5)
    assert _fill(meters, meter, NOON_MONO_S) == 5
    assert not _has_room(meters, meter, 3, NOON_MONO_S + 10.0)
    wait_s = meter.wait_s(3, NOON_MONO_S + 10.0)
    assert 0.0 < wait_s <= 51.0
    later = NOON_MONO_S + 10.0 + wait_s
    assert _has_room(meters, meter, 3, later)


def check_give_back(meters: MetersUnderTest) -> None:
    """What is given back may be taken again at once, and does not count twice later."""
    for unit in Unit:
        meter = _meter(meters, unit, 10)
        assert _fill(meters, meter, NOON_MONO_S) == 10
        meter.give_back(4, NOON_MONO_S, NOON_MONO_S + 1.0)
        assert meter.used(NOON_MONO_S + 1.0) == 6
        assert _fill(meters, meter, NOON_MONO_S + 1.0) == 4
        assert meter.used(NOON_MONO_S + 1.0) == 10


def check_give_back_of_the_past(meters: MetersUnderTest) -> None:
    """What no longer counts is not given back a second time."""
    meter = _meter(meters, Unit.OUTPUT_TOKENS_PER_MIN, 10)
    meter.take(6, NOON_MONO_S)
    later = NOON_MONO_S + 70.0
    meter.take(6, later)
    meter.give_back(6, NOON_MONO_S, later)
    assert meter.used(later) == 6


def check_debt(meters: MetersUnderTest) -> None:
    """A charge is never refused; what was used beyond the limit keeps others out until it has left the window."""
    meter = _meter(meters, Unit.OUTPUT_TOKENS_PER_MIN, 10)
    meter.take(10, NOON_MONO_S)
    meter.charge(5, NOON_MONO_S + 30.0)
    assert meter.used(NOON_MONO_S + 30.0) == 15
    later = NOON_MONO_S + 61.0
    meters.settle(later)
    assert meter.used(later) == 5
    assert _fill(meters, meter, later) == 5


def check_slots(meters: MetersUnderTest) -> None:
    """A slot is free again the moment it is given back, however long it was held."""
    meter = _meter(meters, Unit.CONCURRENT_REQUESTS, 2)
    assert _fill(meters, meter, NOON_MONO_S) == 2
    later = NOON_MONO_S + 3600.0
    assert meter.wait_s(1, later) > 0.0
    meter.give_back(1, NOON_MONO_S, later)
    assert meter.wait_s(1, later) == 0.0
    assert meter.used(later) == 1


def check_days_and_months(meters: MetersUnderTest) -> None:
    """A budget is whole again when its UTC day or month begins, and not a second before."""
    day, month = _meter(meters, Unit.BUDGET_PER_DAY, 100), _meter(meters, Unit.BUDGET_PER_MONTH, 100)
    assert (_fill(meters, day, NOON_MONO_S, 50), _fill(meters, month, NOON_MONO_S, 50)) == (100, 100)
    assert abs(day.reset_s(NOON_MONO_S) - 43200.0) < 0.1
    assert abs(month.reset_s(NOON_MONO_S) - 6 * 86400.0 - 43200.0) < 0.1
    before, after = NOON_MONO_S + 43199.0, NOON_MONO_S + 43201.0
    assert not _has_room(meters, day, 1, before)
    assert (_has_room(meters, day, 1, after), _has_room(meters, month, 1, after)) == (True, False)


def check_ledger_raises(meters: MetersUnderTest) -> None:
    """What the ledger knows of the present period counts; of another period, or less than known, it changes nothing."""
    limit_id = LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY)
    meters.factory.raise_spent(limit_id, 60, DAY_START_AT)
    day = _meter(meters, Unit.BUDGET_PER_DAY, 100)
    assert day.used(NOON_MONO_S) == 60
    meters.factory.raise_spent(limit_id, 90, DAY_START_AT - 86400.0)
    meters.factory.raise_spent(limit_id, 50, DAY_START_AT)
    assert day.used(NOON_MONO_S) == 60
    meters.factory.raise_spent(limit_id, 80, DAY_START_AT)
    meters.settle(NOON_MONO_S)
    assert _fill(meters, day, NOON_MONO_S, 10) == 20


def check_another_amount(meters: MetersUnderTest) -> None:
    """A reload changes the limit and keeps the count."""
    for unit in Unit:
        meter = _meter(meters, unit, 10)
        assert _fill(meters, meter, NOON_MONO_S) == 10
        assert _fill(meters, _meter(meters, unit, 12), NOON_MONO_S) == 2
        lowered = _meter(meters, unit, 5)
        assert (lowered.used(NOON_MONO_S), lowered.wait_s(1, NOON_MONO_S) > 0.0) == (12, True)


def check_held_slots_are_not_forgotten(meters: MetersUnderTest) -> None:
    """A limit that is taken out of the file and put back still knows who is in work."""
    meter = _meter(meters, Unit.CONCURRENT_REQUESTS, 2)
    meter.take(1, NOON_MONO_S)
    meters.factory.keep_only(frozenset())
    assert _fill(meters, _meter(meters, Unit.CONCURRENT_REQUESTS, 2), NOON_MONO_S) == 1


CHECKS: MappingProxyType[str, Callable[[MetersUnderTest], None]] = MappingProxyType(
    {name.removeprefix("check_"): check for name, check in sorted(globals().items()) if name.startswith("check_")}
)
"""All of them, by name."""
