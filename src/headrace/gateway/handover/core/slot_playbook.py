"""Prefill in a slot, the slot's KV to a file, the file to a slot of decode (llama.cpp with a shared folder).

1. Prefill is sent, pinned to a slot that nobody else uses (`slot_book.py`).
2. The slot is saved. As many tokens as the prompt has must be in the file, else somebody else's request had the slot.
3. Prefill's slot is free again; room at decode is claimed, and with it a slot.
4. The file is restored there, again as many tokens; then it is removed. Where the engine said how many bytes it wrote
   and the file is to be seen from here, it must have as many: llama.cpp may die of one that is cut short.
5. Decode is sent, pinned to that slot.

A save that was cut may still write its file after it was removed. Its slot is erased, for which the engine waits until
the save is over, and then the file is removed again; `stale_files` finds what is left where the engine did not answer.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from headrace.engines.handover import SavedSlot, SlotWords
from headrace.gateway.handover.core.events import (
    Action,
    ClaimDecode,
    DecodeClaimed,
    End,
    FileWeighed,
    FreeHeld,
    FreeSlot,
    HandoverEnd,
    HandoverFailure,
    Leg,
    LegAnswered,
    RemoveFile,
    SendLeg,
    Side,
    WeighFile,
)
from headrace.gateway.handover.core.playbook import Expected, Playbook

WEIGH_S = 1.0
"""For looking at a file; on a network folder that hangs it is restored unseen. Chosen."""


class SlotPlaybook(Playbook):
    """See the module. `file_name` is of this attempt alone; `prefill_slot` is claimed already."""

    def __init__(self, words: SlotWords, expected: Expected, *, file_name: str, prefill_slot: int) -> None:
        super().__init__(expected)
        self._words = words
        self._file_name = file_name
        self._prefill_slot: int | None = prefill_slot
        self._decode_slot: int | None = None
        self._prompt_tokens: int | None = None
        self._file_bytes: int | None = None
        self._is_weighing = False
        self._has_file = False
        self._claims_decode = False

    @property
    def file_name(self) -> str | None:
        """See `Playbook`."""
        return self._file_name if self._has_file else None

    def start(self, now_mono_s: float) -> Sequence[Action]:
        """See `Playbook`."""
        assert self._prefill_slot is not None
        request = self._words.prefill(self._prefill_slot)
        return (self._send(SendLeg(Leg.PREFILL, request, self._within(self._expected.prefill_s))),)

    def _answered(self, event: LegAnswered, now_mono_s: float) -> Sequence[Action]:
        match event.leg:
            case Leg.PREFILL:
                return self._save(self._words.read_prompt_tokens(event.body))
            case Leg.SAVE:
                return self._saved(self._words.read_saved(event.body))
            case _:
                return self._restored(self._words.read_restored(event.body))

    def _save(self, prompt_tokens: int | None) -> Sequence[Action]:
        if prompt_tokens is None or self._prefill_slot is None:
            return self._fail(HandoverFailure.PREFILL_UNREADABLE, Side.PREFILL)
        self._prompt_tokens = prompt_tokens
        self._has_file = True
        request = self._words.save(self._prefill_slot, self._file_name)
        return (self._send(SendLeg(Leg.SAVE, request, self._within(self._expected.transfer_s))),)

    def _saved(self, saved: SavedSlot | None) -> Sequence[Action]:
        if saved is None or saved.tokens != self._prompt_tokens or self._prefill_slot is None:
            return self._fail(HandoverFailure.TRANSFER_SHORT, Side.PREFILL)
        if saved.size_bytes == 0:
            return self._fail(HandoverFailure.FILE_TORN, Side.PREFILL)
        self._file_bytes = saved.size_bytes
        freed = FreeSlot(Side.PREFILL, self._prefill_slot)
        self._prefill_slot = None
        self._claims_decode = True
        return (freed, ClaimDecode(self._expected.bound_s))

    def _decode_claimed(self, event: DecodeClaimed, now_mono_s: float) -> Sequence[Action]:
        if not self._claims_decode:
            return ()
        if event.slot is None:
            return self._decode_unavailable()
        self._claims_decode = False
        self._decode_slot = event.slot
        if self._file_bytes is None:
            return self._restore(event.slot)
        self._is_weighing = True
        return (WeighFile(self._file_name, WEIGH_S),)

    def _file_weighed(self, event: FileWeighed) -> Sequence[Action]:
        if not self._is_weighing or self._decode_slot is None:
            return ()
        self._is_weighing = False
        if event.size_bytes is None or event.size_bytes == self._file_bytes:
            return self._restore(self._decode_slot)
        untouched = FreeSlot(Side.DECODE, self._decode_slot)
        self._decode_slot = None
        return (untouched, *self._fail(HandoverFailure.FILE_TORN, Side.PREFILL))

    def _restore(self, slot: int) -> Sequence[Action]:
        request = self._words.restore(slot, self._file_name)
        return (self._send(SendLeg(Leg.RESTORE, request, self._within(self._expected.transfer_s))),)

    def _decode_unavailable(self) -> Sequence[Action]:
        return self._fail(HandoverFailure.DECODE_UNAVAILABLE, Side.DECODE) if self._claims_decode else ()

    def _restored(self, tokens: int | None) -> Sequence[Action]:
        if tokens != self._prompt_tokens or self._decode_slot is None:
            return self._fail(HandoverFailure.TRANSFER_SHORT, Side.DECODE)
        self._has_file = False
        request = self._words.pin(self._decode_slot)
        within_s = self._within(self._expected.first_token_s)
        return (RemoveFile(self._file_name), self._send(SendLeg(Leg.DECODE, request, within_s)))

    def _free(self, end: End, cancelled: frozenset[Leg]) -> Sequence[Action]:
        """After a success the slot keeps its KV, as a prefix of what may come; after a failure it is not trusted."""
        actions: list[Action] = [RemoveFile(self._file_name)] if self._has_file else []
        is_well = end.how in (HandoverEnd.COMPLETED, HandoverEnd.PASSED_ON)
        for side, slot in ((Side.PREFILL, self._prefill_slot), (Side.DECODE, self._decode_slot)):
            if slot is None:
                continue
            if not is_well:
                written = self._file_name if self._has_file and side is Side.PREFILL else None
                actions.append(FreeHeld(side, self._words.erase(slot), written))
            actions.append(FreeSlot(side, slot))
        return actions


def stale_files(ages_s: Mapping[str, float], in_use: AbstractSet[str], *, older_than_s: float) -> Sequence[str]:
    """Return the files of the shared folder that no hand-over uses and that are old enough to be nobody's."""
    return sorted(name for name, age_s in ages_s.items() if name not in in_use and age_s > older_than_s)
