"""What an answer means for a line."""

import pytest

from headrace.batch.core.verdict import ATTEMPTS, WAIT_MOST_S, Verdict, judge


@pytest.mark.parametrize(
    ("status", "code", "verdict"),
    [
        (200, None, Verdict.ANSWERED),
        (400, "invalid_request", Verdict.FAILED),
        (404, "model_not_found", Verdict.FAILED),
        (401, "unauthenticated", Verdict.FAILED),
        (429, "rate_limited", Verdict.AGAIN),
        (429, "quota_exhausted", Verdict.AGAIN),
        (403, "suspended", Verdict.AGAIN),
        (503, "saturated", Verdict.AGAIN),
        (503, "no_ready_endpoint", Verdict.AGAIN),
        (502, "engine_refused", Verdict.BROKEN),
        (500, None, Verdict.BROKEN),
    ],
)
def test_each_answer_has_its_verdict(status: int, code: str | None, verdict: Verdict) -> None:
    """Reasons that pass send the line again, engines that break it too, everything else is its answer."""
    assert judge(status, code, None, 1).verdict is verdict


def test_an_engine_that_breaks_has_four_attempts() -> None:
    """A line that no engine can answer does not go round for ever; a limit that passes may take any time."""
    assert judge(502, "engine_refused", None, ATTEMPTS - 1).verdict is Verdict.BROKEN
    assert judge(502, "engine_refused", None, ATTEMPTS).verdict is Verdict.FAILED
    assert judge(429, "rate_limited", None, ATTEMPTS * 10).verdict is Verdict.AGAIN


def test_the_wait_is_what_was_asked_for_within_bounds() -> None:
    """Retry-After is kept, but a batch looks again once a minute at least."""
    assert judge(429, "rate_limited", 7.0, 1).wait_s == 7.0
    assert judge(429, "rate_limited", 3600.0, 1).wait_s == WAIT_MOST_S
