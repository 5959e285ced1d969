"""Requests that one engine answers alone, at engines that hand over by slots: each is pinned to one.

llama.cpp gives one that is not pinned any slot that is idle, also one whose KV is just being saved.
"""

from dataclasses import dataclass

from headrace.engines.handover import SlotWords
from headrace.gateway.endpoints.seat import Seat
from headrace.gateway.handover.core.slot_book import SlotBook


@dataclass(slots=True, eq=False)
class HeldSlot:
    """Implements `Holding`."""

    book: SlotBook
    slot: int

    def over(self, *, is_answered: bool) -> None:
        self.book.free(self.slot)


def pin(seat: Seat, body: bytes) -> tuple[bytes, HeldSlot | None]:
    """Return the body that names a slot, and the slot until the attempt is over; as it is where hand-overs have all."""
    assert isinstance(seat.words, SlotWords)
    assert seat.slots is not None
    slot = seat.slots.try_share()
    if slot is None:
        return body, None
    return seat.words.pin(slot).body(body), HeldSlot(seat.slots, slot)
