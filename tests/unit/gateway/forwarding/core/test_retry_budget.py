"""The bound of repeated attempts."""

import pytest

from headrace.gateway.forwarding.core.retry_budget import WINDOW_S, RetryBudget


@pytest.mark.parametrize("minimum", [0, 1, 3])
def test_a_share_of_recent_requests_may_be_repeated(minimum: int) -> None:
    """The minimum, and a fifth of what came in this window and the one before."""
    budget = RetryBudget(ratio=0.2, minimum=minimum, now_mono_s=0.0)
    for _ in range(10):
        budget.count_request()
    assert [budget.try_retry(1.0) for _ in range(minimum + 3)] == [True] * (minimum + 2) + [False]


def test_what_a_death_takes_is_not_taken_from_the_others() -> None:
    """Each request that a death interrupted brings its own retry; the share is left for what comes after."""
    budget = RetryBudget(ratio=0.0, minimum=1, now_mono_s=0.0)
    budget.add_reserve(5)
    assert [budget.try_retry(1.0) for _ in range(7)] == [True] * 6 + [False]


def test_what_is_not_recent_is_forgotten() -> None:
    """Windows move on though nobody retries: requests count for two of them."""
    budget = RetryBudget(ratio=1.0, minimum=0, now_mono_s=0.0)
    budget.count_request()
    budget.turn(WINDOW_S)
    budget.count_request()
    assert [budget.try_retry(WINDOW_S + 1) for _ in range(3)] == [True, True, False]
    budget.turn(2 * WINDOW_S)
    budget.turn(3 * WINDOW_S)
    assert not budget.try_retry(3 * WINDOW_S)
