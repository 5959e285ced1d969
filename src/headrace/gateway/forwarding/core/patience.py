"""How long a silent engine is waited for, and what its silence is called."""

from dataclasses import dataclass

from headrace.domain.errors import ErrorCode

DESERTED_S = 5.0
"""Longest silence within a stream of an engine that no longer listens. One that drains goes on sending; a vLLM 0.32.0
that was told to end can leave its streams open and silent for ever. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Decision: the engine was silent for too long."""

    code: ErrorCode
    detail: str


def judge_unanswered(silent_s: float, bound_s: float, *, hangs: bool = False) -> Silence | None:
    """Judge an attempt whose answer has not begun. `hangs`: its engine answers no probes, and there is another."""
    if hangs:
        bound_s = min(bound_s, DESERTED_S)
    if silent_s <= bound_s:
        return None
    why = ", and its probes go unanswered" if hangs else ""
    return Silence(code=ErrorCode.FIRST_TOKEN_TIMEOUT, detail=f"no answer within {bound_s:g} s{why}")


def judge_stall(silent_s: float, bound_s: float, *, is_deserted: bool) -> Silence | None:
    """Judge silence within an answer. `is_deserted`: nobody listens at the endpoint any more."""
    if is_deserted:
        bound_s = min(bound_s, DESERTED_S)
    if silent_s <= bound_s:
        return None
    return Silence(code=ErrorCode.STREAM_STALLED, detail=f"silent for {bound_s:g} s within its answer")
