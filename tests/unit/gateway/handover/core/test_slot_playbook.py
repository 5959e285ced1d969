"""Slots through files: each step, each failure, and what is freed and removed."""

import pytest

from headrace.engines.llamacpp.handover import LlamacppHandover
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
    FreeHeld,
    FreeSlot,
    HandoverEnd,
    HandoverFailure,
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
from headrace.gateway.handover.core.playbook import Expected
from headrace.gateway.handover.core.slot_playbook import WEIGH_S, SlotPlaybook, stale_files

WORDS = LlamacppHandover()
EXPECTED = Expected(prefill_s=2.0, transfer_s=0.5, first_token_s=0.1, bound_s=5.0)
STEPS: tuple[Event, ...] = (
    LegAnswered(Leg.PREFILL, b'{"usage":{"prompt_tokens":70}}'),
    LegAnswered(Leg.SAVE, b'{"n_saved":70}'),
    DecodeClaimed(2),
    LegAnswered(Leg.RESTORE, b'{"n_restored":70}'),
)
REMOVED = RemoveFile("f.bin")


WEIGHED: tuple[Event, ...] = (STEPS[0], LegAnswered(Leg.SAVE, b'{"n_saved":70,"n_written":900}'), STEPS[2])
"""The same until the file is looked at, of an engine that says what it wrote."""


def after(steps: int, events: tuple[Event, ...] = STEPS) -> SlotPlaybook:
    made = SlotPlaybook(WORDS, EXPECTED, file_name="f.bin", prefill_slot=1)
    made.start(0.0)
    for event in events[:steps]:
        made.on(event, 0.0)
    return made


def distrusted(side: Side, slot: int, then_removes: str | None = None) -> list[Action]:
    return [FreeHeld(side, WORDS.erase(slot), then_removes), FreeSlot(side, slot)]


def test_a_prompt_goes_from_slot_to_slot() -> None:
    """Prefill, save, restore, decode: prefill's slot is free after the save, the file gone after the restore."""
    made = SlotPlaybook(WORDS, EXPECTED, file_name="f.bin", prefill_slot=1)
    made.start(0.0)
    found = [list(made.on(event, 0.0)) for event in STEPS]
    assert [SendLeg(Leg.SAVE, WORDS.save(1, "f.bin"), 5.5)] == found[0]
    assert [FreeSlot(Side.PREFILL, 1), ClaimDecode(5.0)] == found[1]
    assert [SendLeg(Leg.RESTORE, WORDS.restore(2, "f.bin"), 5.5)] == found[2]
    assert [REMOVED, SendLeg(Leg.DECODE, WORDS.pin(2), 5.1)] == found[3]
    made.on(FirstTokenArrived(), 0.1)
    end = list(made.on(LegAnswered(Leg.DECODE), 1.0))
    assert [FreeSlot(Side.DECODE, 2), End(HandoverEnd.COMPLETED, leg=Leg.DECODE)] == end


@pytest.mark.parametrize(
    ("steps", "event", "failure", "at_fault", "freed"),
    [
        (0, LegRefused(Leg.PREFILL, 503), HandoverFailure.PREFILL_REFUSED, Side.PREFILL, distrusted(Side.PREFILL, 1)),
        (0, LegLost(Leg.PREFILL), HandoverFailure.PREFILL_LOST, Side.PREFILL, distrusted(Side.PREFILL, 1)),
        (0, LegAnswered(Leg.PREFILL), HandoverFailure.PREFILL_UNREADABLE, Side.PREFILL, distrusted(Side.PREFILL, 1)),
        (
            1,
            LegRefused(Leg.SAVE, 501),
            HandoverFailure.TRANSFER_FAILED,
            Side.PREFILL,
            [REMOVED, *distrusted(Side.PREFILL, 1, "f.bin")],
        ),
        (
            1,
            LegLost(Leg.SAVE),
            HandoverFailure.PREFILL_LOST,
            Side.PREFILL,
            [REMOVED, *distrusted(Side.PREFILL, 1, "f.bin")],
        ),
        (
            1,
            LegAnswered(Leg.SAVE, b'{"n_saved":12}'),
            HandoverFailure.TRANSFER_SHORT,
            Side.PREFILL,
            [REMOVED, *distrusted(Side.PREFILL, 1, "f.bin")],
        ),
        (2, DecodeUnavailable(), HandoverFailure.DECODE_UNAVAILABLE, Side.DECODE, [REMOVED]),
        (
            3,
            LegRefused(Leg.RESTORE, 400, is_callers_fault=True),
            HandoverFailure.TRANSFER_FAILED,
            Side.DECODE,
            [REMOVED, *distrusted(Side.DECODE, 2)],
        ),
        (3, LegLost(Leg.RESTORE), HandoverFailure.DECODE_LOST, Side.DECODE, [REMOVED, *distrusted(Side.DECODE, 2)]),
        (
            3,
            LegAnswered(Leg.RESTORE, b'{"n_restored":69}'),
            HandoverFailure.TRANSFER_SHORT,
            Side.DECODE,
            [REMOVED, *distrusted(Side.DECODE, 2)],
        ),
        (4, LegRefused(Leg.DECODE, 500), HandoverFailure.DECODE_REFUSED, Side.DECODE, distrusted(Side.DECODE, 2)),
        (4, LegLost(Leg.DECODE), HandoverFailure.DECODE_LOST, Side.DECODE, distrusted(Side.DECODE, 2)),
    ],
)
def test_a_step_that_fails_leaves_nothing(
    steps: int, event: Event, failure: HandoverFailure, at_fault: Side, freed: list[Action]
) -> None:
    """The file is removed, the slot erased and given back, and the aggregated way begins in the same step."""
    expected = [*freed, End(HandoverEnd.FELL_BACK, failure=failure, at_fault=at_fault)]
    assert expected == list(after(steps).on(event, 1.0))


@pytest.mark.parametrize(
    ("steps", "leg", "failure"),
    [
        (0, Leg.PREFILL, HandoverFailure.PREFILL_LATE),
        (1, Leg.SAVE, HandoverFailure.TRANSFER_LATE),
        (3, Leg.RESTORE, HandoverFailure.TRANSFER_LATE),
        (4, Leg.DECODE, HandoverFailure.DECODE_LATE),
    ],
)
def test_a_step_that_hangs_is_cancelled(steps: int, leg: Leg, failure: HandoverFailure) -> None:
    """Whichever request hangs is closed first."""
    found = list(after(steps).on(LegOverdue(leg), 9.0))
    assert found[0] == CancelLeg(leg)
    assert found[-1] == End(HandoverEnd.FELL_BACK, failure=failure, at_fault=leg.side)


@pytest.mark.parametrize("size_bytes", [900, None])
def test_a_file_is_looked_at_before_it_is_restored(size_bytes: int | None) -> None:
    """It is restored where it has the bytes that the engine wrote, and where it is not to be seen from here; once."""
    made = after(2, WEIGHED)
    assert list(made.on(DecodeClaimed(2), 0.0)) == [WeighFile("f.bin", WEIGH_S)]
    restore = SendLeg(Leg.RESTORE, WORDS.restore(2, "f.bin"), 5.5)
    assert list(made.on(FileWeighed(size_bytes), 0.0)) == [restore]
    assert list(made.on(FileWeighed(1), 0.1)) == []


@pytest.mark.parametrize("size_bytes", [0, 450, 901])
def test_a_torn_file_is_never_restored(size_bytes: int) -> None:
    """It is removed, decode's slot keeps what it had, and the aggregated way begins."""
    end = End(HandoverEnd.FELL_BACK, failure=HandoverFailure.FILE_TORN, at_fault=Side.PREFILL)
    assert list(after(3, WEIGHED).on(FileWeighed(size_bytes), 0.1)) == [FreeSlot(Side.DECODE, 2), REMOVED, end]


def test_a_save_of_no_bytes_is_none() -> None:
    """An engine that says it wrote nothing has saved nothing, whatever tokens it counts."""
    found = list(after(1).on(LegAnswered(Leg.SAVE, b'{"n_saved":70,"n_written":0}'), 0.0))
    end = End(HandoverEnd.FELL_BACK, failure=HandoverFailure.FILE_TORN, at_fault=Side.PREFILL)
    assert found == [REMOVED, *distrusted(Side.PREFILL, 1, "f.bin"), end]


def test_a_caller_that_leaves_during_the_look_leaves_nothing() -> None:
    """File and slot are given back, and what the look finds then is of no account."""
    made = after(3, WEIGHED)
    assert list(made.on(CallerLeft(), 0.1)) == [REMOVED, *distrusted(Side.DECODE, 2), End(HandoverEnd.CALLER_LEFT)]
    assert list(made.on(FileWeighed(900), 0.2)) == []


def test_a_stream_that_breaks_gives_its_slot_back() -> None:
    """After the first token it is no fallback, and the slot is free for the resumed stream."""
    made = after(4)
    made.on(FirstTokenArrived(), 0.1)
    found = list(made.on(LegLost(Leg.DECODE), 1.0))
    assert found[:-1] == distrusted(Side.DECODE, 2)
    assert isinstance(found[-1], End)
    assert found[-1].how is HandoverEnd.BROKEN


def test_a_caller_that_leaves_during_the_save_leaves_no_file() -> None:
    """The save is cut, its file removed, and once more when the erased slot says that the save is over."""
    expected = [CancelLeg(Leg.SAVE), REMOVED, *distrusted(Side.PREFILL, 1, "f.bin"), End(HandoverEnd.CALLER_LEFT)]
    assert expected == list(after(1).on(CallerLeft(), 1.0))


def test_files_that_nobody_uses_are_found() -> None:
    """What a cut save wrote after its removal goes once it is old; what is in use stays."""
    ages_s = {"old.bin": 100.0, "used.bin": 100.0, "fresh.bin": 1.0}
    assert stale_files(ages_s, {"used.bin"}, older_than_s=60.0) == ["old.bin"]
