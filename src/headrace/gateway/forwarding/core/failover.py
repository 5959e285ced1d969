"""What happens after a failed attempt.

1. The caller has seen content: no second attempt; the stream ends in-band.
2. The code's row in the error table says no: the error goes to the caller.
3. `max_attempts` are used up: likewise.
4. A refused connection, and no other endpoint is usable: likewise, since nobody listens there.
5. The retry budget is used up: likewise.
6. Otherwise try again: at once on another endpoint, after a growing pause on the same one.
"""

from dataclasses import dataclass
from enum import Enum, auto

from headrace.domain.errors import ERRORS, ErrorCode
from headrace.gateway.forwarding.core.retry_budget import RetryBudget


class NextStep(Enum):
    """Commands."""

    TRY_ELSEWHERE = auto()
    TRY_AGAIN_LATER = auto()
    ANSWER_ERROR = auto()
    """As a whole response, or in-band where the head is out already."""
    END_IN_BAND = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """Event: the attempt ended without a complete answer."""

    code: ErrorCode
    attempts: int
    """Attempts made so far, this one included."""
    is_content_sent: bool
    """The commit point is passed: the caller has bytes of an answer."""
    has_other_endpoint: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """`gateway.retry`, without the budget."""

    max_attempts: int
    backoff_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do, and after which pause."""

    step: NextStep
    wait_s: float = 0.0
    is_budget_used_up: bool = False


def decide(
    event: AttemptFailed, limits: RetryLimits, budget: RetryBudget, *, now_mono_s: float, jitter: float
) -> Decision:
    """Decide by the numbered cases above. `jitter` is random in [0, 1). Takes from `budget` where it says try."""
    if event.is_content_sent:
        return Decision(step=NextStep.END_IN_BAND)
    if not ERRORS[event.code].may_fail_over or event.attempts >= limits.max_attempts:
        return Decision(step=NextStep.ANSWER_ERROR)
    if event.code is ErrorCode.CONNECT_FAILED and not event.has_other_endpoint:
        return Decision(step=NextStep.ANSWER_ERROR)
    if not budget.try_retry(now_mono_s):
        return Decision(step=NextStep.ANSWER_ERROR, is_budget_used_up=True)
    if event.has_other_endpoint:
        return Decision(step=NextStep.TRY_ELSEWHERE)
    wait_s = limits.backoff_s * 2 ** (event.attempts - 1) * (0.5 + jitter)
    return Decision(step=NextStep.TRY_AGAIN_LATER, wait_s=wait_s)
