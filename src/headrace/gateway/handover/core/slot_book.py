"""Who has which slot of an engine that hands over by slots: each request is pinned to one, and none has another's."""

from collections import OrderedDict


class SlotBook:
    """One endpoint. Slots that were idle longest go first, so that warm ones stay warm. Concurrency: one owner."""

    def __init__(self, count: int) -> None:
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))
        self._taken: set[int] = set()

    def __repr__(self) -> str:
        return f"SlotBook({len(self._taken)} taken, {len(self._idle)} idle)"

    @property
    def idle(self) -> int:
        return len(self._idle)

    def try_claim(self) -> int | None:
        """Take a slot; None: all are taken."""
        if not self._idle:
            return None
        slot, _ = self._idle.popitem(last=False)
        self._taken.add(slot)
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back, once the engine says that it is idle. Twice is a bug. Raises: KeyError."""
        self._taken.remove(slot)
        self._idle[slot] = None
