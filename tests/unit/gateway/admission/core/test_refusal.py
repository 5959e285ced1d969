"""What a caller is told when a limit keeps it out."""

import pytest

from headrace.domain.errors import ErrorCode
from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.leased_meter import CONTESTED_S
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.gateway.admission.core.purse import Shortage
from headrace.gateway.admission.core.refusal import refusal


def shortage_of(level: Level, name: str, unit: Unit, amount: int, used: int, needed: int) -> Shortage:
    meter = LocalMeters(WallOffset(1_790_251_200.0, 0.0)).meter(LimitId(level, name, unit), amount, 0.0)
    meter.take(used, 0.0)
    return Shortage(meter=meter, amount=needed, wait_s=meter.wait_s(needed, 0.0))


@pytest.mark.parametrize(
    ("level", "name", "unit", "figures", "code", "text"),
    [
        (
            Level.TENANT,
            "ops",
            Unit.INPUT_TOKENS_PER_MIN,
            (1000, 990, 20),
            ErrorCode.RATE_LIMITED,
            (
                "tenant 'ops' is over its limit input_tokens_per_min: 990 of 1000 used, this request needs 20; "
                "room in 60 s"
            ),
        ),
        (
            Level.KEY,
            "abc",
            Unit.CONCURRENT_STREAMING,
            (2, 2, 1),
            ErrorCode.RATE_LIMITED,
            "key 'abc' is over its limit concurrent_streaming: 2 of 2 used, this request needs 1; room in a moment",
        ),
        (
            Level.GATEWAY,
            "",
            Unit.GPU_SECONDS_PER_MIN,
            (5_000_000, 4_000_000, 6_000_000),
            ErrorCode.RATE_LIMITED,
            "the gateway is over its limit gpu_seconds_per_min: a request like this needs 6 s, the limit is 5 s",
        ),
        (
            Level.ORGANISATION,
            "a",
            Unit.BUDGET_PER_DAY,
            (10**9, 10**9, 10**8),
            ErrorCode.QUOTA_EXHAUSTED,
            (
                "organisation 'a' is over its limit budget_per_day: 1 EUR of 1 EUR used, this request needs 0.1 EUR; "
                "room in 43200 s"
            ),
        ),
    ],
)
def test_a_refusal_says_whose_limit_and_how_much(
    level: Level, name: str, unit: Unit, figures: tuple[int, int, int], code: ErrorCode, text: str
) -> None:
    """Level, name, limit, use, need and the time to wait, in the measures that people use."""
    shortage = shortage_of(level, name, unit, *figures)
    error = refusal(shortage, 0.0, "EUR")
    assert (error.code, error.message) == (code, text)
    assert error.figures is not None
    assert (error.figures["level"], error.figures["name"], error.figures["limit"]) == (level.value, name, unit.value)
    assert error.is_final == (code is ErrorCode.QUOTA_EXHAUSTED or shortage.wait_s == float("inf"))


def test_a_budget_that_others_hold_unused_is_worth_another_try() -> None:
    """While another gateway holds unused what is needed, no client is told that its budget is spent."""
    meter = LocalMeters(WallOffset(1_790_251_200.0, 0.0)).meter(
        LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY), 10, 0.0
    )
    error = refusal(Shortage(meter=meter, amount=5, wait_s=CONTESTED_S), 0.0, "EUR")
    assert (error.code, error.is_final, error.retry_after_s) == (ErrorCode.RATE_LIMITED, False, CONTESTED_S)
