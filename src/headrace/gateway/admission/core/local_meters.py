"""Meters of one process: exact, and without any I/O. Counterpart: leased meters, which share a limit with others."""

from collections.abc import Callable

from headrace.domain.calendar import day_of, month_of
from headrace.domain.quota import SLOTS, LimitId, Unit
from headrace.gateway.admission.core.meter import Meter

NEVER_S = float("inf")
SLOTS_PER_S = 2.0
WINDOW_SLOTS = 120
"""A window is 60 seconds, counted by slots of half a second. What was taken counts until its whole slot is 60 seconds
old, so that no 60 seconds hold more than the limit; at most 60.5 seconds count, so that 99 % of it can be used."""
WINDOW_S = WINDOW_SLOTS / SLOTS_PER_S
FIRST_HOLD_S = 1.0
"""How long a slot is held, as long as none has been given back. Chosen: Retry-After has whole seconds."""
HOLD_WEIGHT = 0.2
"""Of the newest time in the mean time that a slot is held. Chosen."""


class LocalMeter:
    """What meters of one process can do beyond `Meter`: look and count in one call, as every request does for each."""

    __slots__ = ()

    def try_take(self, amount: int, now_mono_s: float) -> bool:
        """Count `amount` where it is there."""
        raise NotImplementedError

    def undo(self, amount: int, now_mono_s: float) -> None:
        """Take back what `try_take` has just counted: it never was."""
        raise NotImplementedError


class WindowMeter(LocalMeter):
    """So much in any 60 seconds.

    What was taken counts from when it was taken; what is given back is taken out of that same moment.
    """

    __slots__ = ("_begun_mono_s", "_ends_mono_s", "_slots", "_taken", "_used", "amount", "limit_id")

    def __init__(self, limit_id: LimitId, amount: int) -> None:
        self.limit_id = limit_id
        self.amount = amount
        self._slots: dict[int, int] = {}
        """Amounts by number of their slot, oldest first; only slots in which something was taken."""
        self._begun_mono_s = self._ends_mono_s = 0.0
        """Of the present slot: until its end no slot leaves the window."""
        self._taken = 0
        """In the present slot, and not in `_slots` yet."""
        self._used = 0

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        excess = self._used + amount - self.amount
        return 0.0 if excess <= 0 else self._wait_for(excess, amount, now_mono_s)

    def try_take(self, amount: int, now_mono_s: float) -> bool:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        used = self._used + amount
        if used > self.amount:
            return False
        self._used = used
        if now_mono_s >= self._begun_mono_s:
            self._taken += amount
        else:
            self._take_earlier(amount, now_mono_s)
        return True

    def undo(self, amount: int, now_mono_s: float) -> None:
        self.give_back(amount, now_mono_s, now_mono_s)

    def take(self, amount: int, now_mono_s: float) -> None:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        self._used += amount
        if now_mono_s >= self._begun_mono_s:
            self._taken += amount
        else:
            self._take_earlier(amount, now_mono_s)

    def charge(self, amount: int, now_mono_s: float) -> None:
        self.take(amount, now_mono_s)

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        if taken_mono_s >= self._begun_mono_s:
            held = self._taken
            self._taken = held - amount if amount < held else 0
        else:
            held = self._give_back_earlier(amount, int(taken_mono_s * SLOTS_PER_S))
        self._used -= amount if amount < held else held

    def used(self, now_mono_s: float) -> int:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        return self._used

    def reset_s(self, now_mono_s: float) -> float:
        if now_mono_s >= self._ends_mono_s:
            self._begin(now_mono_s)
        if self._taken:
            return self._ends_mono_s + WINDOW_S - now_mono_s
        for slot in reversed(self._slots):
            return (slot + WINDOW_SLOTS + 1) / SLOTS_PER_S - now_mono_s
        return 0.0

    @property
    def is_unused(self) -> bool:
        return not self._slots and not self._taken

    def _take_earlier(self, amount: int, now_mono_s: float) -> None:
        """Count for a request that was received in a slot that is over: it waited for its turn."""
        slot = int(now_mono_s * SLOTS_PER_S)
        self._slots[slot] = self._slots.get(slot, 0) + amount

    def _give_back_earlier(self, amount: int, slot: int) -> int:
        """Return what is held of a slot that is over, before."""
        held = self._slots.get(slot, 0)
        if amount < held:
            self._slots[slot] = held - amount
        elif held:
            del self._slots[slot]
        return held

    def _wait_for(self, excess: int, amount: int, now_mono_s: float) -> float:
        if amount > self.amount:
            return NEVER_S
        for slot in sorted(self._slots):  # in order but for what was counted late
            excess -= self._slots[slot]
            if excess <= 0:
                return (slot + WINDOW_SLOTS + 1) / SLOTS_PER_S - now_mono_s
        return self._ends_mono_s + WINDOW_S - now_mono_s if excess <= self._taken else NEVER_S

    def _begin(self, now_mono_s: float) -> None:
        """Another slot begins: the one before it is put away, and those that no longer count are taken out."""
        if self._taken:
            self._slots[int(self._begun_mono_s * SLOTS_PER_S)] = self._taken
            self._taken = 0
        present = int(now_mono_s * SLOTS_PER_S)
        self._begun_mono_s, self._ends_mono_s = present / SLOTS_PER_S, (present + 1) / SLOTS_PER_S
        oldest = present - WINDOW_SLOTS
        for slot in [slot for slot in self._slots if slot < oldest]:
            self._used -= self._slots.pop(slot)

    def __repr__(self) -> str:
        return f"WindowMeter({self._used} of {self.amount}, {self.limit_id.unit.value})"


class SlotMeter(LocalMeter):
    """So many at once."""

    __slots__ = ("_hold_s", "_in_use", "amount", "limit_id")

    def __init__(self, limit_id: LimitId, amount: int) -> None:
        self.limit_id = limit_id
        self.amount = amount
        self._in_use = 0
        self._hold_s = FIRST_HOLD_S

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        if self._in_use + amount <= self.amount:
            return 0.0
        return NEVER_S if amount > self.amount else self._hold_s / self.amount

    def try_take(self, amount: int, now_mono_s: float) -> bool:
        in_use = self._in_use + amount
        if in_use > self.amount:
            return False
        self._in_use = in_use
        return True

    def undo(self, amount: int, now_mono_s: float) -> None:
        self._in_use -= amount

    def take(self, amount: int, now_mono_s: float) -> None:
        self._in_use += amount

    def charge(self, amount: int, now_mono_s: float) -> None:
        self.take(amount, now_mono_s)

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        in_use = self._in_use - amount
        self._in_use = in_use if in_use > 0 else 0
        self._hold_s += HOLD_WEIGHT * (now_mono_s - taken_mono_s - self._hold_s)

    def used(self, now_mono_s: float) -> int:
        return self._in_use

    def reset_s(self, now_mono_s: float) -> float:
        return self._hold_s if self._in_use else 0.0

    @property
    def is_unused(self) -> bool:
        return not self._in_use

    def __repr__(self) -> str:
        return f"SlotMeter({self._in_use} of {self.amount}, {self.limit_id.unit.value})"


class WallOffset:
    """UTC epoch seconds minus monotonic seconds, kept up to date by whoever may ask the clock."""

    __slots__ = ("offset_s",)

    def __init__(self, now_at: float, now_mono_s: float) -> None:
        self.offset_s = now_at - now_mono_s

    def follow(self, now_at: float, now_mono_s: float) -> None:
        self.offset_s = now_at - now_mono_s


class CalendarMeter(LocalMeter):
    """So much in one calendar day or month, UTC. What was taken counts in the period in which it was taken."""

    __slots__ = ("_end_at", "_period_of", "_start_at", "_used", "_wall", "amount", "limit_id")

    def __init__(self, limit_id: LimitId, amount: int, wall: WallOffset, now_mono_s: float) -> None:
        self.limit_id = limit_id
        self.amount = amount
        self._wall = wall
        self._period_of = day_of if limit_id.unit is Unit.BUDGET_PER_DAY else month_of
        self._start_at, self._end_at = self._period_of(now_mono_s + wall.offset_s)
        self._used = 0

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        now_at = now_mono_s + self._wall.offset_s
        if now_at >= self._end_at:
            self._begin(now_at)
        if self._used + amount <= self.amount:
            return 0.0
        return NEVER_S if amount > self.amount else self._end_at - now_at

    def try_take(self, amount: int, now_mono_s: float) -> bool:
        now_at = now_mono_s + self._wall.offset_s
        if now_at >= self._end_at:
            self._begin(now_at)
        used = self._used + amount
        if used > self.amount:
            return False
        self._used = used
        return True

    def undo(self, amount: int, now_mono_s: float) -> None:
        self._used -= amount

    def take(self, amount: int, now_mono_s: float) -> None:
        self._used += amount

    def charge(self, amount: int, now_mono_s: float) -> None:
        self._roll(now_mono_s)
        self._used += amount

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        self._roll(now_mono_s)
        if taken_mono_s + self._wall.offset_s >= self._start_at:
            self._used -= min(amount, self._used)

    def used(self, now_mono_s: float) -> int:
        self._roll(now_mono_s)
        return self._used

    def reset_s(self, now_mono_s: float) -> float:
        self._roll(now_mono_s)
        return self._end_at - (now_mono_s + self._wall.offset_s)

    def raise_spent(self, spent: int, period_start_at: float) -> None:
        """See `MeterFactory.raise_spent`."""
        if period_start_at == self._start_at and spent > self._used:
            self._used = spent

    @property
    def start_at(self) -> float:
        return self._start_at

    @property
    def is_unused(self) -> bool:
        return not self._used

    def _roll(self, now_mono_s: float) -> None:
        now_at = now_mono_s + self._wall.offset_s
        if now_at >= self._end_at:
            self._begin(now_at)

    def _begin(self, now_at: float) -> None:
        self._start_at, self._end_at = self._period_of(now_at)
        self._used = 0

    def __repr__(self) -> str:
        return f"CalendarMeter({self._used} of {self.amount}, {self.limit_id.unit.value})"


class LocalMeters:
    """Implements `MeterFactory` for one process that shares its limits with nobody."""

    def __init__(self, wall: WallOffset) -> None:
        self._wall = wall
        self._meters: dict[LimitId, WindowMeter | SlotMeter | CalendarMeter] = {}
        self._spent: dict[LimitId, tuple[int, float]] = {}
        """What the ledger said of budgets whose meters nobody has asked for yet."""

    def meter(self, limit_id: LimitId, amount: int, now_mono_s: float) -> Meter:
        meter = self._meters.get(limit_id)
        if meter is None:
            meter = self._meters[limit_id] = self._make(limit_id, amount, now_mono_s)
        meter.amount = amount
        return meter

    def _make(self, limit_id: LimitId, amount: int, now_mono_s: float) -> "WindowMeter | SlotMeter | CalendarMeter":
        unit = limit_id.unit
        if unit in SLOTS:
            return SlotMeter(limit_id, amount)
        if unit is not Unit.BUDGET_PER_DAY and unit is not Unit.BUDGET_PER_MONTH:
            return WindowMeter(limit_id, amount)
        meter = CalendarMeter(limit_id, amount, self._wall, now_mono_s)
        if limit_id in self._spent:
            meter.raise_spent(*self._spent[limit_id])
        return meter

    def raise_spent(self, limit_id: LimitId, spent: int, period_start_at: float) -> None:
        self._spent[limit_id] = (spent, period_start_at)
        meter = self._meters.get(limit_id)
        if isinstance(meter, CalendarMeter):
            meter.raise_spent(spent, period_start_at)

    def keep_only(self, limit_ids: frozenset[LimitId]) -> None:
        for limit_id in [known for known in self._meters if known not in limit_ids]:
            if not isinstance(self._meters[limit_id], SlotMeter) or self._meters[limit_id].is_unused:
                del self._meters[limit_id]

    def find_outage(self) -> str | None:
        return None

    def await_share(self, meter: Meter, now_mono_s: float, resume: Callable[[], None]) -> bool:
        return False
