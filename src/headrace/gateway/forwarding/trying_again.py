"""Nothing came of an attempt, and the caller has nothing yet: another attempt, or the end, as the core decides.

Counterpart: `delivery.py`, whose attempt failed; `going_on.py`, where the caller has a part of an answer.
"""

from random import random
from typing import Protocol

from headrace.domain.errors import ErrorCode, RequestError
from headrace.engines.contract import EngineError
from headrace.gateway.forwarding.core.failover import AttemptFailed, NextStep, decide
from headrace.gateway.forwarding.elsewhere import Refused, move_on
from headrace.gateway.forwarding.ports import DeliveryAccount, failure_of


class Unanswered(Refused, Protocol):
    """Whose attempt failed: the delivery."""

    @property
    def account(self) -> DeliveryAccount: ...

    def fail(self, error: RequestError) -> None: ...


def attempt_again(delivery: Unanswered, code: ErrorCode, now: float, engine_error: EngineError | None) -> None:
    """Take the next step."""
    settings, attempts = delivery.settings, delivery.account.attempts
    event = AttemptFailed(
        code=code,
        attempts=attempts,
        is_content_sent=False,
        has_other_endpoint=settings.candidates.has_other(delivery.request, delivery.tried) or move_on(delivery),
    )
    decision = decide(event, settings.retry, settings.budget, now_mono_s=now, jitter=random())  # noqa: S311
    settings.meters.retry_budget_refusals += decision.is_budget_used_up
    if decision.step is NextStep.TRY_ELSEWHERE:
        failovers = delivery.meters.failovers
        failovers[code.value] = failovers.get(code.value, 0) + 1
        delivery.start_over()
        delivery.try_next()
    elif decision.step is NextStep.TRY_AGAIN_LATER:
        delivery.meters.retries += 1
        delivery.start_over()
        delivery.pause = settings.loop.call_later(decision.wait_s, delivery.try_next)
    else:
        delivery.fail(failure_of(code, engine_error, attempts))
