"""How long a silent engine is waited for."""

from headrace.domain.errors import ErrorCode
from headrace.gateway.forwarding.core.patience import DESERTED_S, judge_stall, judge_unanswered


def test_an_answer_may_begin_up_to_its_bound() -> None:
    """At the bound it is still waited for, beyond it the first token is late."""
    assert judge_unanswered(2.0, 2.0) is None
    late = judge_unanswered(2.001, 2.0)
    assert late is not None
    assert (late.code, late.detail) == (ErrorCode.FIRST_TOKEN_TIMEOUT, "no answer within 2 s")


def test_a_deserted_stream_is_given_up_sooner() -> None:
    """Where nobody listens any more a stream gets DESERTED_S, or the pool's bound if that is shorter."""
    assert judge_stall(DESERTED_S + 1, 60.0, is_deserted=False) is None
    stall = judge_stall(DESERTED_S + 1, 60.0, is_deserted=True)
    assert stall is not None
    assert (stall.code, stall.detail) == (ErrorCode.STREAM_STALLED, "silent for 5 s within its answer")
    shorter = judge_stall(1.5, 1.0, is_deserted=True)
    assert shorter is not None
    assert "1 s" in shorter.detail
