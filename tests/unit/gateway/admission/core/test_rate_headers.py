"""`x-ratelimit-*`, as OpenAI's clients read them."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.local_meters import WindowMeter
from headrace.gateway.admission.core.rate_headers import RateHeaders


def meter(amount: int, used: int, unit: Unit = Unit.REQUESTS_PER_MIN) -> WindowMeter:
    made = WindowMeter(LimitId(Level.TENANT, "t", unit), amount)
    made.take(used, 100.0)
    return made


def lines(headers: RateHeaders) -> dict[str, str]:
    text = headers.lines(101.0).decode()
    return dict(line.split(": ") for line in text.split("\r\n") if line)


def test_nothing_is_said_without_a_window() -> None:
    """Callers under no limit get no headers."""
    assert RateHeaders([], []).lines(0.0) == b""


def test_the_level_with_the_least_left_is_told() -> None:
    """Several levels limit requests: the one that will refuse first counts."""
    found = lines(RateHeaders([meter(100, 20), meter(50, 10), meter(60, 19)], []))
    assert found == {
        "x-ratelimit-limit-requests": "50",
        "x-ratelimit-remaining-requests": "40",
        "x-ratelimit-reset-requests": "59500ms",
    }


def test_tokens_are_the_tighter_of_input_and_output() -> None:
    """In debt, nothing remains."""
    inputs, outputs = meter(1000, 10, Unit.INPUT_TOKENS_PER_MIN), meter(500, 600, Unit.OUTPUT_TOKENS_PER_MIN)
    found = lines(RateHeaders([], [inputs, outputs]))
    assert (found["x-ratelimit-limit-tokens"], found["x-ratelimit-remaining-tokens"]) == ("500", "0")
