"""A leased share of a limit on what is used up within a minute, a day or a month. See `leased_meter.py`."""

from headrace.domain.quota import LimitId
from headrace.gateway.admission.core.leased_meter import ASKING_S, CONTESTED_S, EXACT_MAX, NEVER_S, Desk, LeasedMeter
from headrace.tenancy.leases.core.periods import length_s, period_of
from headrace.tenancy.leases.exchange import SLOT_S, WINDOW_SLOTS, LeaseAnswer, LeaseKind, LeaseReport, Use

IDLE_S = 5.0
"""A purse that nobody used for so long goes back."""
AHEAD_S = 0.3
"""A purse is filled for so long ahead: three exchanges."""
PART_RATIO = 0.05
"""Largest part of a limit lent ahead of need."""
TOLD_PART = 20
"""What is given back is told to the book at once where it is this part of the limit: it may be what another lacks."""
RATE_WEIGHT = 0.3
"""Of the newest exchange in the learned rate of use. Chosen."""


class LeasedPurse(LeasedMeter):
    """Implements `Meter` for what is used up within a minute, a day or a month."""

    __slots__ = (
        "_asked",
        "_asked_least",
        "_attributed",
        "_base",
        "_book_free",
        "_book_used",
        "_changed",
        "_floor",
        "_floor_period",
        "_gone",
        "_is_rate",
        "_period",
        "_period_ends_mono_s",
        "_rate_per_s",
        "_reported_mono_s",
        "_reported_total",
        "_reset_mono_s",
        "_said",
        "_said_total",
        "_settled",
        "_told_open",
        "_total",
        "_typical",
        "_uses",
        "open",
        "purse",
    )

    def __init__(self, limit_id: LimitId, amount: int, desk: Desk) -> None:
        super().__init__(limit_id, amount, desk)
        self.purse = 0
        """What may be used without asking; below 0 where more was used than was leased."""
        self.open = 0
        """Of a budget: what requests in work have reserved and not settled, in this period."""
        self._told_open = 0
        """As the book was told last."""
        self._is_rate = self.kind is LeaseKind.RATE
        self._uses: dict[int, int] = {}
        """What was used here: of a rate in the last minute, by slots of time; of a budget all, in slot 0."""
        self._said: dict[int, int] = {}
        """As `_uses`, as far as the book has been told."""
        self._changed: set[int] = set()
        """Slots in which the two may differ."""
        self._total = self._said_total = self._gone = 0
        """All that was used since the start; what the book was told of it; what is older than a minute."""
        self._asked = self._asked_least = 0
        self._book_used = 0
        self._book_free: int | None = None
        self._reset_mono_s = 0.0
        self._period = 0
        self._period_ends_mono_s = NEVER_S
        self._floor, self._floor_period = 0, 0
        self._base = 0
        """Of a budget: what was spent when the book was lost, less what was used here until then."""
        self._settled = self._attributed = 0
        """Without a book: what was used and settled here when the ledger spoke last; how much of what it has said is
        known to be whose."""
        self._rate_per_s = 0.0
        self._typical = 0
        self._reported_mono_s: float | None = None
        self._reported_total = 0

    # --- Meter

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        if amount <= self.purse:
            return 0.0
        if amount > self.amount:
            return NEVER_S
        among = self._desk.alone_among
        if among and self._is_rate:
            share = max(1, self.amount // among)
            self.purse = max(self.purse, share - self._own_used(now_mono_s))
            if self.purse >= min(amount, share):
                return 0.0
        self._miss(amount, now_mono_s)
        if self.is_asking(now_mono_s):
            return ASKING_S
        if among and not self._is_rate:  # Our part is spent; perhaps all.
            return self.reset_s(now_mono_s) if self.used(now_mono_s) + amount > self.amount else CONTESTED_S
        if self._is_contested:
            return CONTESTED_S
        return max(ASKING_S, self._retry_mono_s - now_mono_s)

    def take(self, amount: int, now_mono_s: float) -> None:
        slot = int(now_mono_s / SLOT_S) if self._is_rate else 0
        uses = self._uses
        uses[slot] = uses.get(slot, 0) + amount
        self._changed.add(slot)
        self._total += amount
        self.purse -= amount
        self._typical, self._used_mono_s = amount, now_mono_s
        self._need_until_mono_s = 0.0
        if not self.is_listed:
            self._desk.list_meter(self)

    charge = take

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        slot = 0
        if self._is_rate:
            slot = int(taken_mono_s / SLOT_S)
            if slot <= int(now_mono_s / SLOT_S) - WINDOW_SLOTS:
                return
            amount = min(amount, self._uses.get(slot, 0))
        elif self._has_passed(taken_mono_s, now_mono_s):
            return
        if amount > 0:
            self._uses[slot] = self._uses.get(slot, 0) - amount
            self._changed.add(slot)
            self._total -= amount
            self.purse += amount
            if not self.is_listed:
                self._desk.list_meter(self)
            if amount * TOLD_PART >= self.amount:
                self._desk.hurry()

    # --- of a budget: what is reserved, so that it is given back should this process die

    @property
    def is_budget(self) -> bool:
        return not self._is_rate

    def begin(self, amount: int) -> None:
        """So much of what was taken or charged is reserved for a request in work."""
        self.open += amount

    def end(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        """So much of it is settled; what was not used has been given back."""
        if not self._has_passed(taken_mono_s, now_mono_s):
            self.open = max(0, self.open - amount)
            if not self.is_listed:
                self._desk.list_meter(self)

    def used(self, now_mono_s: float) -> int:
        unsaid = self._total - self._said_total
        if self._is_rate:
            own = self._own_used(now_mono_s)
            is_fresh = self._answered_mono_s is not None and now_mono_s - self._answered_mono_s < 60.0
            return max(own, self._book_used + unsaid) if is_fresh else own
        if now_mono_s >= self._period_ends_mono_s:
            return 0
        alone = self._base + self._total if self._desk.alone_among else 0
        return max(0, self._book_used + unsaid, self._known_spent, alone)

    def reset_s(self, now_mono_s: float) -> float:
        if self._is_rate:
            own_s = 0.0
            if self._own_used(now_mono_s):
                own_s = (next(reversed(self._uses)) + WINDOW_SLOTS) * SLOT_S - now_mono_s
            return max(0.0, own_s, self._reset_mono_s - now_mono_s)
        if not self._period:
            return period_of(self.kind, now_mono_s + self._desk.wall.offset_s)[1]
        return max(0.0, self._reset_mono_s - now_mono_s)

    # --- exchanges

    @property
    def is_unused(self) -> bool:
        return not self._changed

    @property
    def holds_anything(self) -> bool:
        return self.purse > 0 or bool(self._changed)

    @property
    def is_used_elsewhere(self) -> bool:
        return self._is_rate and self._book_used > 0

    def raise_spent(self, spent: int, period_start_at: float) -> None:
        """The ledger says so: the book counts at least that, and without one we give no more than our part of the rest.

        What others hold is theirs to give, so that only the part counts: however often members are lost and replaced,
        their parts of what is left are together at most that.
        """
        period, _ = period_of(self.kind, period_start_at)
        if not period or (period, spent) < (self._floor_period, self._floor):
            return
        is_next = 0 < max(self._period, self._floor_period) < period
        if (period, spent) != (self._floor_period, self._floor):
            self._floor, self._floor_period = spent, period
            self._desk.list_meter(self)
        if (among := self._desk.alone_among) and is_next:
            self._begin_alone(among)
        elif among:
            self._leave_to_ledger()
            self.purse = min(self.purse, self._part(among) - self.open)

    def report(self, now_mono_s: float) -> LeaseReport:
        """Say what was used and what is held, after letting go of what is not needed."""
        want = self._ahead(now_mono_s)
        need = least = 0
        if self.is_in_need(now_mono_s) and not self.is_leaving:
            least = min(max(self._least, 1), self.amount)
            need = min(max(least, self._short), self.amount)
            want = max(want, need)
        # What was used beyond the purse is among the uses: from now on it is the book's debt. Without a book, our part
        # of a budget is all there is: it is kept until the book grants again.
        is_kept = self._desk.alone_among and not self._is_rate
        if not is_kept:
            self.purse = max(0, min(self.purse, want, self._keep))
        uses = self._tell(now_mono_s)
        self._asked, self._asked_least, self._short = need, least, 0
        was_open, self._told_open = self._told_open, self.open
        period = max(self._period, self._floor_period)
        return LeaseReport(
            limit=self.text,
            kind=self.kind,
            amount=min(self.amount, EXACT_MAX),
            held=max(0, self.purse),
            need=need,
            least=least,
            want=want,
            uses=uses,
            floor=self._floor if self._floor_period == period else 0,
            seen=self._book_used if self._period == period else 0,
            period=period,
            open=self.open,
            was_open=was_open,
        )

    def adopt(self, answer: LeaseAnswer, now_mono_s: float) -> None:
        """Take on what the book granted and knows."""
        self.purse += answer.grant
        self._book_used, self._book_free = answer.used, answer.free
        self._reset_mono_s = now_mono_s + answer.resets_in_s
        if answer.period != self._period and self._period:
            self.open = self._told_open = 0  # Of the period that is over nothing is given back.
        self._period = answer.period
        if answer.period:
            self._period_ends_mono_s = now_mono_s + answer.resets_in_s
        reachable = self.purse + answer.free + answer.held_by_others
        self._hear(
            answer,
            now_mono_s,
            is_enough=self.purse >= self._asked,
            is_elsewhere=answer.held_by_others > 0 and reachable >= self._asked_least,
        )

    def go_alone(self, among: int) -> None:
        """The book does not answer: of a budget, take our part of what it had left, once until it answers again.

        1. The book has told us what was free: our part of that, beside what we hold.
        2. It never has, or the ledger knows of more than the book: what we hold is no more than our part of the rest.
        """
        if self._is_rate:
            return
        unsaid = self._total - self._said_total
        self._attributed = max(self._book_used + unsaid, self._known_spent)
        self._base, self._settled = self._attributed - self._total, self._total - self.open
        part = self._part(among) - self.open
        if self._book_free is None:
            self.purse += max(0, part)
        else:
            self.purse += max(0, self._book_free) // among
            if self._known_spent > self._book_used + unsaid:
                self.purse = min(self.purse, part)
        self._book_free = 0

    def expire(self) -> None:
        """The book has given up on us: what we held is no longer ours. Our part of a budget is: nobody else has it."""
        if self._is_rate or not self._desk.alone_among:
            self.purse = min(self.purse, 0)

    def retell(self, told: LeaseReport | None, told_mono_s: float, now_mono_s: float) -> None:
        """The book began anew: it hears of the rest of the last minute again. Budgets it knows by `seen`."""
        if told is None:
            self._told_open = 0  # This book has never heard of it; what it counts as spent has it in.
        if not self._is_rate:
            return
        self._own_used(now_mono_s)
        self._said = {}
        present = int(told_mono_s / SLOT_S)
        for use in told.uses if told is not None else ():
            if (slot := present - use.age_slots) in self._uses:
                self._said[slot] = self._said.get(slot, 0) + use.amount
        self._said_total = self._gone + sum(self._said.values())
        self._changed = set(self._uses)
        self._desk.list_meter(self)

    # --- inside

    @property
    def _known_spent(self) -> int:
        """What the ledger says of the present period."""
        return self._floor if self._floor_period >= self._period else 0

    def _part(self, among: int) -> int:
        """Our part of what is left of a budget, by what the ledger says."""
        return max(0, self.amount - self._known_spent) // among

    def _leave_to_ledger(self) -> None:
        """What was settled here before it spoke last is in what it says now: it shall not count twice in the book."""
        told = min(self._settled - self._said_total, self._known_spent - self._attributed)
        if told > 0:
            self._attributed += told
            self._said[0] = self._said.get(0, 0) + told
            self._said_total += told
        self._settled = self._total - self.open

    def _begin_alone(self, among: int) -> None:
        """Another day or month has begun while the book is lost: what was used before counts no more."""
        self._said, self._said_total = dict(self._uses), self._total
        self._changed.clear()
        self._attributed, self._settled = self._floor, self._total
        self._base, self.open = self._floor - self._total, 0
        self.purse = self._part(among)

    def _tell(self, now_mono_s: float) -> tuple[Use, ...]:
        """What the book has not been told; from now on it has."""
        self._own_used(now_mono_s)
        present = int(now_mono_s / SLOT_S) if self._is_rate else 0
        told: list[Use] = []
        for slot in self._changed:
            amount = self._uses.get(slot, 0) - self._said.get(slot, 0)
            if amount:
                told.append(Use(max(0, present - slot), amount))
                self._said[slot] = self._said.get(slot, 0) + amount
                self._said_total += amount
        self._changed.clear()
        return tuple(told)

    def _own_used(self, now_mono_s: float) -> int:
        """What was used here and still counts, after letting go of what does not."""
        uses = self._uses
        if self._is_rate and uses:
            oldest = int(now_mono_s / SLOT_S) - WINDOW_SLOTS
            if next(iter(uses)) <= oldest:
                for slot in [slot for slot in uses if slot <= oldest]:
                    amount = uses.pop(slot)
                    self._gone += amount
                    self._said_total += amount - self._said.pop(slot, 0)
                    self._changed.discard(slot)
        return self._total - self._gone

    def _has_passed(self, taken_mono_s: float, now_mono_s: float) -> bool:
        """Whether the period in which something was taken is over."""
        if not self._period:
            return False
        ends_mono_s = self._period_ends_mono_s
        began_mono_s = ends_mono_s if now_mono_s >= ends_mono_s else ends_mono_s - length_s(self.kind, self._period)
        return taken_mono_s < began_mono_s

    def _ahead(self, now_mono_s: float) -> int:
        """How much to hold without a need, as far as lately used; learned from one report to the next."""
        if self._reported_mono_s is not None and now_mono_s > self._reported_mono_s:
            rate_per_s = max(0, self._total - self._reported_total) / (now_mono_s - self._reported_mono_s)
            self._rate_per_s += RATE_WEIGHT * (rate_per_s - self._rate_per_s)
        self._reported_mono_s, self._reported_total = now_mono_s, self._total
        if self._is_recalled or self.is_leaving or now_mono_s - self._used_mono_s > IDLE_S:
            return 0
        ahead = int(self._rate_per_s * AHEAD_S) + 2 * self._typical
        return min(ahead, max(self._typical, int(self.amount * PART_RATIO)))

    def __repr__(self) -> str:
        return f"LeasedPurse({self.purse} here of {self.amount}, {self.limit_id.unit.value})"
