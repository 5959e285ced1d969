"""llama.cpp's words of a hand-over: slots saved to files and restored. Source: b11549 (xllamacpp 2026.10), run."""

from urllib.parse import quote

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.handover import FitRules, LegRequest, SavedSlot


class _Usage(msgspec.Struct):
    prompt_tokens: int


class _Answer(msgspec.Struct):
    usage: _Usage


class _Saved(msgspec.Struct):
    n_saved: int
    n_written: int | None = None
    """Bytes of the file, as handed to the system. Where the disk is full at the last of them the answer is a success
    all the same: measured, b11549 said 4,842,544 of a file that had 4,841,472."""


class _Restored(msgspec.Struct):
    n_restored: int


class LlamacppHandover:
    """See `handover.SlotWords`."""

    serves_whole = True
    """Any server restores and saves."""
    fit_rules = FitRules()

    def pin(self, slot: int) -> LegRequest:
        """See `handover.SlotWords`."""
        return LegRequest(fields={"id_slot": slot, "cache_prompt": True})

    def prefill(self, slot: int) -> LegRequest:
        """See `handover.SlotWords`. The one token that it generates is not in the slot: only tokens fed are."""
        fields = {"id_slot": slot, "cache_prompt": True, "stream": False, "max_tokens": 1}
        return LegRequest(
            fields=fields, dropped=frozenset({"stream_options", "max_completion_tokens", "n_predict", "min_tokens"})
        )

    def read_prompt_tokens(self, body: bytes) -> int | None:
        """See `handover.SlotWords`."""
        try:
            return msgspec.json.decode(body, type=_Answer).usage.prompt_tokens
        except UNDECODABLE:
            return None

    def save(self, slot: int, file_name: str) -> LegRequest:
        """See `handover.SlotWords`. It waits until the slot is idle."""
        return _slot_call(slot, "save", {"filename": file_name})

    def read_saved(self, body: bytes) -> SavedSlot | None:
        """See `handover.SlotWords`."""
        try:
            said = msgspec.json.decode(body, type=_Saved)
        except UNDECODABLE:
            return None
        return SavedSlot(tokens=said.n_saved, size_bytes=said.n_written)

    def restore(self, slot: int, file_name: str) -> LegRequest:
        """See `handover.SlotWords`."""
        return _slot_call(slot, "restore", {"filename": file_name})

    def read_restored(self, body: bytes) -> int | None:
        """See `handover.SlotWords`."""
        try:
            return msgspec.json.decode(body, type=_Restored).n_restored
        except UNDECODABLE:
            return None

    def erase(self, slot: int) -> LegRequest:
        """See `handover.SlotWords`."""
        return _slot_call(slot, "erase", {})


def _slot_call(slot: int, action: str, fields: dict[str, object]) -> LegRequest:
    return LegRequest(path=f"/slots/{slot}?action={quote(action)}", fields=fields)
