"""Prefill first, then decode: each step, and each failure of each step."""

from collections.abc import Sequence

import msgspec
import pytest

from headrace.domain.request import ApiDialect
from headrace.engines.handover import TicketWords
from headrace.engines.tensorrt_llm.handover import TensorrtLlmHandover
from headrace.engines.vllm.handover import VllmHandover
from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    ClaimDecode,
    DecodeClaimed,
    DecodeUnavailable,
    End,
    FirstTokenArrived,
    HandoverEnd,
    HandoverFailure,
    Leg,
    LegAnswered,
    LegLost,
    LegOverdue,
    LegRefused,
    SendLeg,
    Side,
)
from headrace.gateway.handover.core.playbook import Expected
from headrace.gateway.handover.core.ticket_playbook import TicketPlaybook
from headrace.gateway.handover.core.tickets import SpentTickets

EXPECTED = Expected(prefill_s=2.0, transfer_s=0.5, first_token_s=0.1, bound_s=5.0)
PARAMS = {
    "do_remote_prefill": True,
    "remote_block_ids": [1],
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "h",
    "remote_port": 1,
}
VLLM_ANSWER = msgspec.json.encode({"kv_transfer_params": PARAMS})
TRT_CHOICE = {"finish_reason": "length", "disaggregated_params": {"encoded_opaque_state": "s"}}
TRT_ANSWER = msgspec.json.encode({"choices": [TRT_CHOICE]})
BOTH = pytest.mark.parametrize(
    ("words", "answer"),
    [(VllmHandover(), VLLM_ANSWER), (TensorrtLlmHandover(), TRT_ANSWER)],
    ids=["vllm", "tensorrt-llm"],
)


def playbook(words: TicketWords, spent: SpentTickets | None = None) -> TicketPlaybook:
    tickets = SpentTickets() if spent is None else spent
    return TicketPlaybook(words, tickets, EXPECTED, attempt_id="a1", api=ApiDialect.CHAT_COMPLETIONS)


def until_decode(words: TicketWords, answer: bytes, spent: SpentTickets | None = None) -> TicketPlaybook:
    made = playbook(words, spent)
    made.start(0.0)
    made.on(LegAnswered(Leg.PREFILL, answer), 1.0)
    made.on(DecodeClaimed(), 1.0)
    return made


def fell_back(failure: HandoverFailure, at_fault: Side | None, *cancelled: Leg) -> list[Action]:
    end = End(HandoverEnd.FELL_BACK, failure=failure, at_fault=at_fault)
    return [*(CancelLeg(leg) for leg in cancelled), end]


@BOTH
def test_a_handover_goes_from_prefill_to_decode(words: TicketWords, answer: bytes) -> None:
    """Prefill, its ticket, room at decode, decode, the end: one leg at a time, each with its bound."""
    made = playbook(words)
    first: Sequence[Action] = made.start(0.0)
    assert [(one.leg, one.within_s) for one in first if isinstance(one, SendLeg)] == [(Leg.PREFILL, 7.0)]
    assert [ClaimDecode(5.0)] == list(made.on(LegAnswered(Leg.PREFILL, answer), 1.0))
    sent = made.on(DecodeClaimed(), 1.0)
    assert [(one.leg, one.within_s) for one in sent if isinstance(one, SendLeg)] == [(Leg.DECODE, 5.6)]
    assert list(made.on(FirstTokenArrived(), 1.5)) == []
    assert list(made.on(LegOverdue(Leg.DECODE), 6.7)) == [], "a long answer is not late"
    assert [End(HandoverEnd.COMPLETED, leg=Leg.DECODE)] == list(made.on(LegAnswered(Leg.DECODE), 60.0))
    assert made.running == frozenset()


@BOTH
@pytest.mark.parametrize(
    ("event", "failure", "cancelled"),
    [
        (LegRefused(Leg.PREFILL, 503), HandoverFailure.PREFILL_REFUSED, ()),
        (LegLost(Leg.PREFILL), HandoverFailure.PREFILL_LOST, ()),
        (LegOverdue(Leg.PREFILL), HandoverFailure.PREFILL_LATE, (Leg.PREFILL,)),
        (LegAnswered(Leg.PREFILL, b"{}"), HandoverFailure.PREFILL_UNREADABLE, ()),
    ],
)
def test_a_prefill_that_fails_is_left(
    words: TicketWords, answer: bytes, event: LegLost, failure: HandoverFailure, cancelled: tuple[Leg, ...]
) -> None:
    """Refused, dead, hanging or without a ticket: at once the aggregated way, and not at that engine."""
    made = playbook(words)
    made.start(0.0)
    assert fell_back(failure, Side.PREFILL, *cancelled) == list(made.on(event, 7.0))
    assert list(made.on(LegAnswered(Leg.PREFILL, answer), 7.1)) == [], "an answer that comes after all is not used"


@BOTH
@pytest.mark.parametrize(
    ("event", "failure", "cancelled"),
    [
        (LegRefused(Leg.DECODE, 500), HandoverFailure.DECODE_REFUSED, ()),
        (LegRefused(Leg.DECODE, 400, is_callers_fault=True), HandoverFailure.DECODE_REFUSED, ()),
        (LegLost(Leg.DECODE), HandoverFailure.DECODE_LOST, ()),
        (LegOverdue(Leg.DECODE), HandoverFailure.DECODE_LATE, (Leg.DECODE,)),
    ],
)
def test_a_decode_that_fails_before_its_first_token_is_left(
    words: TicketWords, answer: bytes, event: LegLost, failure: HandoverFailure, cancelled: tuple[Leg, ...]
) -> None:
    """KV lost or slow, decode refusing, dead or hanging: the aggregated way, whatever decode calls it."""
    made = until_decode(words, answer)
    assert fell_back(failure, Side.DECODE, *cancelled) == list(made.on(event, 7.0))


@BOTH
def test_no_room_at_decode_is_a_fallback(words: TicketWords, answer: bytes) -> None:
    """Who computed the prompt in vain says so by the reason."""
    made = playbook(words)
    made.start(0.0)
    made.on(LegAnswered(Leg.PREFILL, answer), 1.0)
    assert fell_back(HandoverFailure.DECODE_UNAVAILABLE, Side.DECODE) == list(made.on(DecodeUnavailable(), 6.0))


@BOTH
def test_a_ticket_is_not_used_once_its_kv_may_be_gone(words: TicketWords, answer: bytes) -> None:
    """Decode had room too late: the lease would end during the transfer."""
    made = playbook(words)
    made.start(0.0)
    made.on(LegAnswered(Leg.PREFILL, answer), 1.0)
    assert fell_back(HandoverFailure.TICKET_EXPIRED, None) == list(made.on(DecodeClaimed(), 61.0))


def test_a_ticket_is_used_once_by_whatever_request() -> None:
    """An engine that gives the same parameters again is not believed: decode would answer another prompt's text."""
    spent = SpentTickets()
    until_decode(VllmHandover(), VLLM_ANSWER, spent)
    made = playbook(VllmHandover(), spent)
    made.start(0.0)
    made.on(LegAnswered(Leg.PREFILL, VLLM_ANSWER), 1.0)
    assert fell_back(HandoverFailure.TICKET_SPENT, Side.PREFILL) == list(made.on(DecodeClaimed(), 1.0))


def test_room_that_is_found_twice_sends_decode_once() -> None:
    """A second claim has no ticket to send."""
    made = until_decode(VllmHandover(), VLLM_ANSWER)
    assert list(made.on(DecodeClaimed(), 1.0)) == []


def test_a_wrong_request_is_the_callers_to_hear() -> None:
    """What prefill finds wrong is told to the caller, not tried elsewhere."""
    made = playbook(VllmHandover())
    made.start(0.0)
    refused = LegRefused(Leg.PREFILL, 400, is_callers_fault=True)
    assert [End(HandoverEnd.PASSED_ON, leg=Leg.PREFILL)] == list(made.on(refused, 0.1))


def test_a_context_that_finished_is_the_whole_answer() -> None:
    """TensorRT-LLM's model had nothing to say after the first token: no second leg."""
    made = playbook(TensorrtLlmHandover())
    made.start(0.0)
    body = TRT_ANSWER.replace(b"length", b"stop")
    assert [End(HandoverEnd.COMPLETED, leg=Leg.PREFILL)] == list(made.on(LegAnswered(Leg.PREFILL, body), 1.0))


def test_an_answer_that_breaks_is_no_fallback() -> None:
    """After the first token the request is a stream as any other: it is resumed, or ends in-band."""
    made = until_decode(VllmHandover(), VLLM_ANSWER)
    made.on(FirstTokenArrived(), 2.0)
    end = End(HandoverEnd.BROKEN, failure=HandoverFailure.DECODE_LOST, at_fault=Side.DECODE)
    assert [end] == list(made.on(LegLost(Leg.DECODE), 3.0))


def test_a_caller_that_leaves_ends_everything() -> None:
    """The leg that runs is cancelled; later events change nothing."""
    made = until_decode(VllmHandover(), VLLM_ANSWER)
    assert [CancelLeg(Leg.DECODE), End(HandoverEnd.CALLER_LEFT)] == list(made.on(CallerLeft(), 2.0))
    assert list(made.on(LegLost(Leg.DECODE), 2.1)) == []
    assert repr(made) == "TicketPlaybook(caller-left)"
