"""Whatever happens in whatever order, a hand-over ends once, with nothing left running and no ticket used twice."""

from collections.abc import Sequence
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.request import ApiDialect
from headrace.engines.llamacpp.handover import LlamacppHandover
from headrace.engines.sglang.handover import SglangHandover
from headrace.engines.vllm.handover import VllmHandover
from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    ClaimDecode,
    DecodeClaimed,
    DecodeUnavailable,
    End,
    Event,
    FileWeighed,
    FirstTokenArrived,
    FreeSlot,
    HandoverEnd,
    Leg,
    LegAnswered,
    LegLost,
    LegOverdue,
    LegRefused,
    RemoveFile,
    SendLeg,
    Side,
    WeighFile,
)
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.core.room_playbook import Meeting, RoomPlaybook
from headrace.gateway.handover.core.slot_playbook import SlotPlaybook
from headrace.gateway.handover.core.ticket_playbook import TicketPlaybook
from headrace.gateway.handover.core.tickets import SpentTickets

EXPECTED = Expected(prefill_s=2.0, transfer_s=0.5, first_token_s=0.1, bound_s=5.0)
LONGEST_S = 2.0 + 0.5 + 0.1 + 5.0


def vllm_answer(key: int) -> bytes:
    named = {"remote_engine_id": "e", "remote_request_id": f"r{key}", "remote_host": "h", "remote_port": 1}
    return msgspec.json.encode({"kv_transfer_params": {"do_remote_prefill": True, "remote_block_ids": [1], **named}})


BODIES = st.sampled_from(
    [
        b"",
        vllm_answer(1),
        vllm_answer(2),
        b'{"usage":{"prompt_tokens":70}}',
        b'{"n_saved":70}',
        b'{"n_saved":70,"n_written":9}',
        b'{"n_saved":71}',
        b'{"n_restored":70}',
        b'{"n_restored":0}',
    ]
)
LEGS = st.sampled_from(list(Leg))
GOOD: tuple[Event, ...] = (
    LegAnswered(Leg.PREFILL, vllm_answer(1)),
    LegAnswered(Leg.PREFILL, b'{"usage":{"prompt_tokens":70}}'),
    LegAnswered(Leg.SAVE, b'{"n_saved":70,"n_written":9}'),
    DecodeClaimed(2),
    FileWeighed(9),
    LegAnswered(Leg.RESTORE, b'{"n_restored":70}'),
    FirstTokenArrived(),
)
EVENTS = st.one_of(
    st.sampled_from(GOOD),
    st.builds(LegAnswered, LEGS, BODIES),
    st.builds(LegRefused, LEGS, st.sampled_from([400, 500, 503]), BODIES, st.booleans()),
    st.builds(LegLost, LEGS),
    st.builds(LegOverdue, LEGS),
    st.just(DecodeUnavailable()),
    st.just(DecodeClaimed()),
    st.builds(FileWeighed, st.sampled_from([None, 8, 9])),
    st.just(CallerLeft()),
)
KINDS = st.sampled_from(["ticket", "room", "slot"])


def playbook(kind: str, spent: SpentTickets, number: int) -> Playbook:
    if kind == "room":
        meeting = Meeting(host="h", port=1, room=number)
        return RoomPlaybook(SglangHandover(), EXPECTED, attempt_id=f"a{number}", meeting=meeting)
    if kind == "slot":
        return SlotPlaybook(LlamacppHandover(), EXPECTED, file_name=f"{number}.bin", prefill_slot=1)
    api = ApiDialect.CHAT_COMPLETIONS
    return TicketPlaybook(VllmHandover(), spent, EXPECTED, attempt_id=f"a{number}", api=api)


def feed(made: Playbook, events: Sequence[Event]) -> list[Action]:
    """Everything that it did until the events ran out, and then the time of whatever still runs or is claimed."""
    actions = list(made.start(0.0))
    now_mono_s = 0.0
    for event in events:
        now_mono_s += 0.01
        actions += made.on(event, now_mono_s)
    for event in (FileWeighed(None), *(LegOverdue(leg) for leg in Leg), DecodeUnavailable(), LegLost(Leg.DECODE)):
        actions += made.on(event, now_mono_s + LONGEST_S)
    return actions


def is_needless(action: Action) -> bool:
    return isinstance(action, SendLeg) and not 0 < action.within_s <= LONGEST_S


@given(KINDS, st.lists(EVENTS, max_size=14))
def test_a_handover_always_ends_once(kind: str, events: list[Event]) -> None:
    """One end and so one charge, last of all; every leg within its bound; no leg sent twice; none left running."""
    made = playbook(kind, SpentTickets(), 1)
    actions = feed(made, events)
    assert [type(action) for action in actions].count(End) == 1
    assert isinstance(actions[-1], End)
    assert made.end == actions[-1]
    sent = [action.leg for action in actions if isinstance(action, SendLeg)]
    assert len(sent) == len(set(sent))
    assert not any(is_needless(action) for action in actions)
    assert made.running == frozenset()
    cancelled = [action.leg for action in actions if isinstance(action, CancelLeg)]
    assert len(cancelled) == len(set(cancelled))
    assert set(cancelled) <= set(sent)


@given(st.lists(EVENTS, max_size=14))
def test_slots_and_files_are_given_back_once(events: list[Event]) -> None:
    """Each slot that was taken is free at the end, once; a file that may have been written is removed."""
    made = playbook("slot", SpentTickets(), 1)
    actions = feed(made, events)
    freed = [(action.side, action.slot) for action in actions if isinstance(action, FreeSlot)]
    legs = {action.leg for action in actions if isinstance(action, SendLeg)}
    is_claimed = Leg.RESTORE in legs or any(isinstance(action, WeighFile) for action in actions)
    expected = {(Side.PREFILL, 1), (Side.DECODE, 2)} if is_claimed else {(Side.PREFILL, 1)}
    assert expected == set(freed)
    assert len(freed) == len(set(freed))
    assert (Leg.SAVE in legs) is any(isinstance(action, RemoveFile) for action in actions)


@given(st.lists(st.lists(EVENTS, max_size=8), min_size=2, max_size=5))
def test_no_ticket_is_sent_twice(requests: list[list[Event]]) -> None:
    """Of all requests together, whatever prefill engines answer, each ticket reaches decode at most once."""
    spent = SpentTickets()
    used: list[object] = []
    for number, events in enumerate(requests):
        actions = feed(playbook("ticket", spent, number), events)
        sent = (one.request.fields for one in actions if isinstance(one, SendLeg) and one.leg is Leg.DECODE)
        used += [bytes(fields["kv_transfer_params"]) for fields in sent]  # pyright: ignore[reportArgumentType]
    assert len(used) == len(set(used))


@given(KINDS, st.lists(EVENTS, max_size=14))
def test_no_fallback_once_the_caller_has_a_token(kind: str, events: list[Event]) -> None:
    """A caller never has the beginning of one answer and the whole of another."""
    made = playbook(kind, SpentTickets(), 1)
    made.start(0.0)
    has_token = False
    for event in events:
        is_speaking = Leg.DECODE in made.running
        made.on(event, 0.1)
        has_token = has_token or (is_speaking and isinstance(event, FirstTokenArrived))
        if has_token and made.end is not None:
            assert made.end.how not in (HandoverEnd.FELL_BACK, HandoverEnd.PASSED_ON)


EVERY: tuple[Event, ...] = (
    *(LegAnswered(leg, body) for leg in Leg for body in (b"", b'{"n_saved":70,"n_written":9}', vllm_answer(1))),
    *(LegRefused(leg, 400, is_callers_fault=is_caller) for leg in Leg for is_caller in (False, True)),
    *(kind(leg) for leg in Leg for kind in (LegLost, LegOverdue)),
    *(FirstTokenArrived(), DecodeClaimed(), DecodeClaimed(2), DecodeUnavailable(), CallerLeft()),
    *(FileWeighed(size_bytes) for size_bytes in (None, 8, 9)),
)


@pytest.mark.parametrize("kind", ["ticket", "room", "slot"])
def test_a_handover_always_waits_for_something_that_comes(kind: str) -> None:
    """In every state but the end a leg runs, room at decode is being claimed, or a file looked at: each has a bound."""
    path = (LegAnswered(Leg.PREFILL, vllm_answer(1)), DecodeClaimed()) if kind == "ticket" else GOOD[1:]
    for well, one, two in product(range(len(path) + 1), EVERY, EVERY):
        made = playbook(kind, SpentTickets(), 1)
        actions, is_claiming, is_looking = made.start(0.0), False, False
        for event in (*path[:well], one, two):
            assert made.end is not None or made.running or is_claiming or is_looking, (made, event)
            actions = made.on(event, 0.1)
            is_claiming = is_claiming and not isinstance(event, DecodeClaimed | DecodeUnavailable)
            is_claiming = is_claiming or any(isinstance(action, ClaimDecode) for action in actions)
            is_looking = is_looking and not isinstance(event, FileWeighed)
            is_looking = is_looking or any(isinstance(action, WeighFile) for action in actions)
        assert made.end is not None or made.running or is_claiming or is_looking, (made, path[:well], one, two)
