"""Who has which slot of an engine that hands over by slots: each request is pinned to one; none has a hand-over's."""

from collections import OrderedDict
from collections.abc import Iterable


class SlotBook:
    """One endpoint, or one worker's part of its slots. Slots that were idle longest go first, so that warm ones stay
    warm. Concurrency: one owner.
    """

    def __init__(self, slots: Iterable[int]) -> None:
        self.slots = tuple(slots)
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(self.slots)
        self._handing: set[int] = set()
        self._serving: dict[int, int] = {}
        """Whole requests by slot."""

    def __repr__(self) -> str:
        return f"SlotBook({len(self._handing)} hand over, {len(self._serving)} serve, {len(self._idle)} idle)"

    @property
    def idle(self) -> int:
        return len(self._idle)

    def try_claim(self) -> int | None:
        """Take a slot for a hand-over, which shares it with nobody; None: none is idle."""
        if not self._idle:
            return None
        slot, _ = self._idle.popitem(last=False)
        self._handing.add(slot)
        return slot

    def try_share(self) -> int | None:
        """Take a slot for a whole request: an idle one, else that with the fewest, where the engine lets it wait.

        None: hand-overs have all of them.
        """
        if self._idle:
            slot, _ = self._idle.popitem(last=False)
        elif self._serving:
            slot = min(self._serving, key=self._serving.__getitem__)
        else:
            return None
        self._serving[slot] = self._serving.get(slot, 0) + 1
        return slot

    def follow(self, slots: Iterable[int]) -> None:
        """Give out these from now on, by a new plan. One that is in use and not among them is not given again."""
        self.slots = tuple(slots)
        for slot in [slot for slot in self._idle if slot not in self.slots]:
            del self._idle[slot]
        for slot in self.slots:
            if slot not in self._handing and slot not in self._serving:
                self._idle.setdefault(slot)

    def free(self, slot: int) -> None:
        """Give a slot back. Twice is a bug. Raises: KeyError."""
        if slot in self._handing:
            self._handing.remove(slot)
        else:
            self._serving[slot] -= 1
            if self._serving[slot]:
                return
            del self._serving[slot]
        if slot in self.slots:
            self._idle[slot] = None
