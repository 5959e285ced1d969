"""Both legs at once: what follows when one of them fails."""

from collections.abc import Sequence

import pytest

from headrace.engines.sglang.handover import SglangHandover
from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    End,
    FirstTokenArrived,
    FreeHeld,
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
from headrace.gateway.handover.core.room_playbook import ROOMS, Meeting, RoomPlaybook

WORDS = SglangHandover()
EXPECTED = Expected(prefill_s=2.0, transfer_s=0.5, first_token_s=0.1, bound_s=5.0)


def begun(room: int = 7) -> tuple[RoomPlaybook, Sequence[Action]]:
    made = RoomPlaybook(WORDS, EXPECTED, attempt_id="a1", meeting=Meeting(host="h", port=8998, room=room))
    return made, made.start(0.0)


def survivor(leg: Leg) -> list[Action]:
    return [CancelLeg(leg), FreeHeld(leg.side, WORDS.abort("a1"))]


def test_both_legs_are_sent_the_same_at_once() -> None:
    """One body with one room; the bound holds for prefill, transfer and first token together."""
    made, actions = begun()
    sent = [one for one in actions if isinstance(one, SendLeg)]
    assert [(one.leg, one.within_s) for one in sent] == [(Leg.PREFILL, 7.6), (Leg.DECODE, 7.6)]
    assert sent[0].request == sent[1].request
    assert list(made.on(LegAnswered(Leg.PREFILL), 2.5)) == []
    assert list(made.on(FirstTokenArrived(), 2.6)) == []
    assert [End(HandoverEnd.COMPLETED, leg=Leg.DECODE)] == list(made.on(LegAnswered(Leg.DECODE), 9.0))


@pytest.mark.parametrize(
    ("event", "failure", "at_fault", "left"),
    [
        (LegRefused(Leg.PREFILL, 503), HandoverFailure.PREFILL_REFUSED, Side.PREFILL, (Leg.DECODE,)),
        (LegLost(Leg.PREFILL), HandoverFailure.PREFILL_LOST, Side.PREFILL, (Leg.DECODE,)),
        (LegOverdue(Leg.PREFILL), HandoverFailure.PREFILL_LATE, Side.PREFILL, (Leg.PREFILL, Leg.DECODE)),
        (LegRefused(Leg.DECODE, 503), HandoverFailure.DECODE_REFUSED, Side.DECODE, (Leg.PREFILL,)),
        (LegRefused(Leg.DECODE, 500, b"KVTransferError"), HandoverFailure.TRANSFER_FAILED, Side.DECODE, (Leg.PREFILL,)),
        (LegLost(Leg.DECODE), HandoverFailure.DECODE_LOST, Side.DECODE, (Leg.PREFILL,)),
        (LegOverdue(Leg.DECODE), HandoverFailure.DECODE_LATE, Side.DECODE, (Leg.PREFILL, Leg.DECODE)),
    ],
)
def test_the_survivor_is_cancelled_and_aborted(
    event: LegLost, failure: HandoverFailure, at_fault: Side, left: tuple[Leg, ...]
) -> None:
    """A leg alone would wait for minutes: its connection is closed, its id aborted, and the aggregated way begins."""
    made, _ = begun()
    cancels = [CancelLeg(leg) for leg in left]
    frees = [FreeHeld(leg.side, WORDS.abort("a1")) for leg in sorted(left)]
    expected = [*cancels, *frees, End(HandoverEnd.FELL_BACK, failure=failure, at_fault=at_fault)]
    assert expected == list(made.on(event, 7.6))
    assert made.running == frozenset()


def test_a_wrong_request_is_passed_on_and_decode_is_cancelled() -> None:
    """Prefill's word on the request goes to the caller; decode does not wait for it."""
    made, _ = begun()
    refused = LegRefused(Leg.PREFILL, 400, is_callers_fault=True)
    assert [*survivor(Leg.DECODE), End(HandoverEnd.PASSED_ON, leg=Leg.PREFILL)] == list(made.on(refused, 0.1))


def test_decodes_word_on_the_request_is_passed_on_where_it_comes_first() -> None:
    """Both are sent the same: a prompt that is too long is decode's fault as little as prefill's."""
    made, _ = begun()
    refused = LegRefused(Leg.DECODE, 400, is_callers_fault=True)
    assert [*survivor(Leg.PREFILL), End(HandoverEnd.PASSED_ON, leg=Leg.DECODE)] == list(made.on(refused, 0.1))


@pytest.mark.parametrize("event", [LegLost(Leg.PREFILL), LegRefused(Leg.PREFILL, 500)])
def test_prefill_does_not_matter_once_decode_speaks(event: LegLost) -> None:
    """With the first token the KV is there: prefill may die."""
    made, _ = begun()
    made.on(FirstTokenArrived(), 1.0)
    assert list(made.on(event, 1.1)) == []
    assert [End(HandoverEnd.COMPLETED, leg=Leg.DECODE)] == list(made.on(LegAnswered(Leg.DECODE), 2.0))


def test_a_prefill_that_never_ends_is_closed() -> None:
    """It hangs though decode has the KV: it is cancelled when overdue, or with decode's end."""
    made, _ = begun()
    made.on(FirstTokenArrived(), 1.0)
    assert [CancelLeg(Leg.PREFILL)] == list(made.on(LegOverdue(Leg.PREFILL), 7.6))
    made, _ = begun()
    made.on(FirstTokenArrived(), 1.0)
    ended = list(made.on(LegAnswered(Leg.DECODE), 2.0))
    assert [*survivor(Leg.PREFILL), End(HandoverEnd.COMPLETED, leg=Leg.DECODE)] == ended


def test_a_caller_that_leaves_ends_both() -> None:
    """Both legs are cancelled and aborted."""
    made, _ = begun()
    found = list(made.on(CallerLeft(), 0.1))
    assert found[:2] == [CancelLeg(Leg.PREFILL), CancelLeg(Leg.DECODE)]
    assert found[-1] == End(HandoverEnd.CALLER_LEFT)


@pytest.mark.parametrize("room", [-1, ROOMS])
def test_a_room_has_63_bits(room: int) -> None:
    """SGLang would refuse or cut another number."""
    with pytest.raises(ValueError, match="a room is"):
        begun(room)
