"""How fast a queue drains."""

from headrace.gateway.admission.core.drain_rate import DrainRate


def test_nothing_seen_is_no_rate():
    """Before any start the rate is not known, and callers are told a second."""
    rate = DrainRate()
    assert rate.per_s(10.0) is None
    assert rate.wait_s(5, 10.0) is None
    assert rate.retry_after_s(100, 10.0) == 1.0


def test_a_steady_rate_is_found_soon():
    """Four starts a second are four starts a second, after a few seconds as well as after a minute."""
    for seconds in (3, 60):
        rate = DrainRate()
        for start in range(seconds * 4 + 1):
            rate.note(start / 4)
        found = rate.per_s(float(seconds))
        assert found is not None
        assert 3.5 < found < 4.8


def test_retry_after_is_the_wait_for_those_ahead():
    """With four starts a second, who has 39 before him is told about ten seconds; never more than a minute."""
    rate = DrainRate()
    for start in range(400):
        rate.note(start / 4)
    assert 9.0 <= rate.retry_after_s(39, 100.0) <= 11.0
    assert rate.retry_after_s(100_000, 100.0) == 60.0
    assert rate.retry_after_s(0, 100.0) == 1.0


def test_a_queue_that_stands_still_has_a_falling_rate():
    """After the last start the rate falls, and the time to come back grows."""
    rate = DrainRate()
    for start in range(100):
        rate.note(start / 4)
    assert rate.retry_after_s(39, 60.0) > rate.retry_after_s(39, 25.0)
