"""All of a caller's meters at once: all or nothing, and what comes back."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.gateway.admission.core.purse import (
    CONCURRENT,
    INDEX,
    INPUT,
    OUTPUT,
    REQUESTS,
    Amounts,
    Purse,
    Reservation,
    Shortage,
    no_amounts,
)

NOW_S = 1000.0


def purse_of(**limits: int) -> Purse:
    factory = LocalMeters(WallOffset(0.0, 0.0))
    return Purse(
        [factory.meter(LimitId(Level.TENANT, "t", Unit(unit)), most, NOW_S) for unit, most in limits.items()], None
    )


def amounts(**wanted: int) -> Amounts:
    made = no_amounts()
    for unit, amount in wanted.items():
        made[INDEX[Unit(unit)]] = amount
    return made


def used(purse: Purse) -> dict[str, int]:
    return {meter.limit_id.unit.value: meter.used(NOW_S) for _, meter in purse.meters}


def test_one_limit_that_is_short_takes_nothing_of_the_others() -> None:
    """A refused request leaves no trace in any meter."""
    purse = purse_of(requests_per_min=10, input_tokens_per_min=100, concurrent_requests=5)
    wanted = amounts(requests_per_min=1, input_tokens_per_min=101, concurrent_requests=1)
    shortage = purse.try_reserve(wanted, NOW_S)
    assert isinstance(shortage, Shortage)
    assert (shortage.meter.limit_id.unit, shortage.amount) == (Unit.INPUT_TOKENS_PER_MIN, 101)
    assert used(purse) == {"requests_per_min": 0, "input_tokens_per_min": 0, "concurrent_requests": 0}


def test_the_limit_that_is_short_for_longest_is_named() -> None:
    """What would keep the request out after the others are free again is what its caller is told."""
    purse = purse_of(requests_per_min=1, concurrent_requests=1)
    wanted = amounts(requests_per_min=1, concurrent_requests=1)
    assert isinstance(purse.try_reserve(wanted, NOW_S), Reservation)
    shortage = purse.try_reserve(wanted, NOW_S)
    assert isinstance(shortage, Shortage)
    assert shortage.meter.limit_id.unit is Unit.REQUESTS_PER_MIN


def test_settling_gives_back_and_charges() -> None:
    """More input than estimated is charged, less output than allowed given back, the slot goes back whole."""
    purse = purse_of(requests_per_min=10, input_tokens_per_min=100, output_tokens_per_min=100, concurrent_requests=5)
    reservation = purse.try_reserve(
        amounts(requests_per_min=1, input_tokens_per_min=50, output_tokens_per_min=90, concurrent_requests=1), NOW_S
    )
    assert isinstance(reservation, Reservation)
    reservation.settle(amounts(requests_per_min=1, input_tokens_per_min=120, output_tokens_per_min=30), NOW_S + 5.0)
    expected = {
        "requests_per_min": 1,
        "input_tokens_per_min": 120,
        "output_tokens_per_min": 30,
        "concurrent_requests": 0,
    }
    assert used(purse) == expected
    reservation.settle(no_amounts(), NOW_S + 6.0)
    assert (used(purse), repr(reservation)) == (expected, "Reservation(settled, 4 meters)")


def test_a_growing_answer_holds_more_and_never_less() -> None:
    """What is known to come is held at once; a smaller guess changes nothing."""
    purse = purse_of(output_tokens_per_min=100)
    reservation = purse.try_reserve(amounts(output_tokens_per_min=10), NOW_S)
    assert isinstance(reservation, Reservation)
    reservation.grow(amounts(output_tokens_per_min=60), NOW_S + 5.0)
    reservation.grow(amounts(output_tokens_per_min=150), NOW_S + 9.0)
    assert (used(purse), reservation.expected_output_tokens) == ({"output_tokens_per_min": 150}, 150)
    reservation.grow(amounts(output_tokens_per_min=20), NOW_S + 10.0)
    assert used(purse) == {"output_tokens_per_min": 150}
    reservation.settle(amounts(output_tokens_per_min=40), NOW_S + 20.0)
    assert used(purse) == {"output_tokens_per_min": 40}
    ((_, meter),) = purse.meters
    assert [meter.used(NOW_S + later_s) for later_s in (60.0, 61.0, 65.0, 66.0)] == [40, 30, 30, 0]


def test_what_grew_and_was_not_used_at_all_leaves_nothing_behind() -> None:
    """All of it goes back out of the times at which it was taken."""
    purse = purse_of(output_tokens_per_min=100)
    reservation = purse.try_reserve(amounts(output_tokens_per_min=10), NOW_S)
    assert isinstance(reservation, Reservation)
    reservation.grow(amounts(output_tokens_per_min=300), NOW_S + 30.0)
    reservation.settle(no_amounts(), NOW_S + 40.0)
    assert used(purse) == {"output_tokens_per_min": 0}


def test_a_slot_that_is_declared_late_is_taken_and_given_back() -> None:
    """A limit that is declared while a request runs counts it, once, until its end."""
    before, after = purse_of(requests_per_min=5), purse_of(concurrent_requests=3, requests_per_min=5)
    reservation = before.try_reserve(amounts(requests_per_min=1, concurrent_requests=1), NOW_S)
    assert isinstance(reservation, Reservation)
    for _ in range(2):
        reservation.move_under(after, NOW_S)
    assert used(after) == {"concurrent_requests": 1, "requests_per_min": 0}
    reservation.settle(no_amounts(), NOW_S)
    reservation.move_under(after, NOW_S)
    assert used(after) == {"concurrent_requests": 0, "requests_per_min": 0}


def test_every_unit_has_its_place() -> None:
    """Amounts are told by position."""
    assert len(no_amounts()) == len(Unit) == len(set(INDEX.values()))
    assert [REQUESTS, INPUT, OUTPUT, CONCURRENT] == [0, 1, 2, 4]
