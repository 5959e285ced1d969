"""What an answer of the gateway means for the line that was sent: it is answered, or it is to be sent again.

1. 2xx: the line's answer.
2. Refused before an engine saw it, for a reason that passes (a limit, a full queue, a suspended tenant, no engine
   ready): again, for as long as the batch's window is open. None of these counts as an attempt.
3. 5xx: an engine or the gateway broke: again, ATTEMPTS times in all.
4. Anything else is the line's own fault: its answer, in the error file.
"""

from dataclasses import dataclass
from enum import Enum, auto

ATTEMPTS = 4
"""Times that a line is sent before an engine's failure is its answer. Chosen."""
SHORT_WAIT_S = 1.0
LONG_WAIT_S = 5.0
"""For what an operator or the next day has to cure: a suspended tenant, a spent budget. Chosen."""
WAIT_MOST_S = 60.0
PASSING = frozenset({"rate_limited", "saturated", "queue_expired", "no_ready_endpoint", "draining"})
PASSING_LATE = frozenset({"suspended", "quota_exhausted", "identity_unavailable"})


class Verdict(Enum):
    """What becomes of the line."""

    ANSWERED = auto()
    FAILED = auto()
    """Answered in the error file."""
    AGAIN = auto()
    BROKEN = auto()
    """To be sent again, as long as it has attempts left."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, and how long to wait before the line is sent again."""

    verdict: Verdict
    wait_s: float = 0.0


def judge(status: int, code: str | None, retry_after_s: float | None, attempt: int) -> Judgement:
    """Judge the answer to attempt number `attempt` (from 1); `code` is the error's, where it is one of ours."""
    if 200 <= status < 300:
        return Judgement(Verdict.ANSWERED)
    if code in PASSING:
        return Judgement(Verdict.AGAIN, min(WAIT_MOST_S, max(SHORT_WAIT_S, retry_after_s or 0.0)))
    if code in PASSING_LATE:
        return Judgement(Verdict.AGAIN, LONG_WAIT_S)
    if (status >= 500 or status in (408, 429)) and attempt < ATTEMPTS:
        wait_s = max(SHORT_WAIT_S * 2 ** (attempt - 1), retry_after_s or 0.0)
        return Judgement(Verdict.BROKEN, min(WAIT_MOST_S, wait_s))
    return Judgement(Verdict.FAILED)
