"""When an issuer's keys are asked for again."""

from headrace.gateway.identity.core.key_refresh import LAST_RETRY_S, UNKNOWN_KEY_INTERVAL_S, KeyRefresh


def test_unknown_keys_cause_one_look_in_a_while():
    """A flood of made-up key ids does not become a flood at the issuer."""
    refresh = KeyRefresh(refresh_s=300, keep_s=3600)
    refresh.note_fetched(100.0)
    assert refresh.try_hurry(101.0)
    assert refresh.is_looking
    assert not any(refresh.try_hurry(101.0 + one / 10) for one in range(int(UNKNOWN_KEY_INTERVAL_S * 10)))
    refresh.note_fetched(102.0)
    assert not refresh.is_looking
    assert refresh.try_hurry(101.0 + UNKNOWN_KEY_INTERVAL_S)


def test_failures_pause_longer_and_longer_up_to_a_bound():
    """An issuer that is down is not hammered."""
    refresh = KeyRefresh(refresh_s=300, keep_s=3600)
    pauses = []
    for _ in range(9):
        refresh.note_failed(0.0)
        pauses.append(refresh.next_mono_s)
    assert pauses == [1, 2, 4, 8, 16, 32, LAST_RETRY_S, LAST_RETRY_S, LAST_RETRY_S]
    refresh.note_fetched(10.0)
    assert (refresh.failures, refresh.next_mono_s) == (0, 310.0)


def test_keys_count_as_long_as_they_are_kept():
    """While the issuer is down its last keys count, but not for ever."""
    refresh = KeyRefresh(refresh_s=300, keep_s=3600)
    assert not refresh.is_usable(0.0)
    refresh.note_fetched(0.0)
    assert (refresh.is_usable(3599.9), refresh.is_usable(3600.0)) == (True, False)


def test_keys_of_an_earlier_process_are_looked_at_again_at_once():
    """They count by their age, and fresh ones are fetched without delay."""
    refresh = KeyRefresh(refresh_s=300, keep_s=3600)
    refresh.note_fetched(1000.0, age_s=3000.0)
    assert (refresh.next_mono_s, refresh.is_usable(1599.0), refresh.is_usable(1600.0)) == (1000.0, True, False)
