"""When a first token is late."""

from headrace.gateway.forwarding.core.lateness import FEWEST, SAMPLES, Lateness


def test_nothing_is_late_before_enough_is_known() -> None:
    """One first token less than the fewest says nothing yet."""
    lateness = Lateness(0.0)
    for _ in range(FEWEST - 1):
        lateness.add(1.0)
    assert lateness.late_after_s is None
    lateness.add(1.0)
    assert lateness.late_after_s == 1.0


def test_late_is_later_than_nineteen_of_twenty() -> None:
    """The 95th percentile of the last ones; what came long ago is forgotten."""
    lateness = Lateness(0.0)
    for number in range(SAMPLES):
        lateness.add(number % 100 / 100)
    assert lateness.late_after_s is not None
    assert 0.9 <= lateness.late_after_s <= 0.97
    for _ in range(SAMPLES + 16):
        lateness.add(5.0)
    assert lateness.late_after_s == 5.0


def test_a_fast_pool_is_not_hedged_for_nothing() -> None:
    """Never late before the declared delay."""
    lateness = Lateness(0.2)
    for _ in range(FEWEST):
        lateness.add(0.001)
    assert lateness.late_after_s == 0.2
    lateness.adopt(0.1)
    assert lateness.late_after_s == 0.1
