"""One shared limit in the book: what is used up, who holds leases, and what the next asker gets.

Always: used + held by all members <= amount, but for debts and members that came with more than they were given. The
script in Redis (`exchange.lua`) decides the same; `tests/property/test_leases.py` compares the two.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.tenancy.leases.core.fair_share import fair_shares
from headrace.tenancy.leases.core.periods import period_of
from headrace.tenancy.leases.exchange import SLOT_S, WINDOW_SLOTS, LeaseAnswer, LeaseKind, LeaseReport

NEED_S = 0.5
"""A need that is not reported again within this time is over: a member in need asks every 20 ms."""


@dataclass(slots=True)
class Lease:
    """What one member holds of the limit, as it said last, and what was granted on that."""

    amount: int
    """The limit as this member last declared it."""
    held: int = 0
    need: int = 0
    need_until_s: float = 0.0
    since_s: float = 0.0
    """Since when it has needed more than it holds."""
    open: int = 0
    open_period: int = 0
    """Of a budget: what its requests in work have reserved, and of which period."""

    def unmet(self, now_s: float) -> int:
        return max(0, self.need - self.held) if now_s < self.need_until_s else 0


@dataclass(slots=True)
class Pot:
    """One limit."""

    kind: LeaseKind
    amount: int
    used: int = 0
    slots: dict[int, int] = field(default_factory=dict[int, int])
    """Of a rate: what was used, by slots of time; the sum is `used`."""
    period: int = 0
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])

    @property
    def held(self) -> int:
        return sum(lease.held for lease in self.leases.values())

    @property
    def free(self) -> int:
        return self.amount - self.used - self.held

    def is_waited_for(self, now_s: float) -> bool:
        return any(lease.unmet(now_s) > 0 for lease in self.leases.values())

    def answer(
        self,
        member: str,
        report: LeaseReport,
        now_s: float,
        now_at: float,
        *,
        is_alive: Callable[[str], bool],
        delay_slots: int = 0,
        may_grant: bool = True,
        is_same_book: bool = True,
    ) -> LeaseAnswer:
        """Take one report in and decide on it. `is_same_book`: it was this book that answered the member last."""
        resets_in_s = self._pass_time(now_s, now_at)
        self._bury(is_alive, now_s)
        lease = self._record(member, report, now_s, delay_slots, is_same_book=is_same_book)
        decide = self._decide_slots if self.kind is LeaseKind.SLOTS else self._decide_purse
        grant, keep = decide(member, lease, report, now_s, may_grant=may_grant)
        lease.held += grant
        unmet = lease.unmet(now_s)
        return LeaseAnswer(
            limit=report.limit,
            grant=grant,
            keep=keep,
            free=self.free,
            used=self.used,
            held_by_others=self.held - lease.held,
            wait_s=self._wait_s(unmet, now_s, resets_in_s) if unmet else 0.0,
            resets_in_s=resets_in_s if self.kind is not LeaseKind.RATE else self._last_reset_s(now_s),
            period=self.period,
        )

    def _pass_time(self, now_s: float, now_at: float) -> float:
        """Let go what no longer counts; return the seconds until the period ends."""
        if self.kind is LeaseKind.RATE:
            oldest = int(now_s // SLOT_S) - WINDOW_SLOTS
            for slot in [slot for slot in self.slots if slot <= oldest]:
                self.used -= self.slots.pop(slot)
        period, resets_in_s = period_of(self.kind, now_at)
        if period != self.period:
            self.period, self.used = period, 0
        return resets_in_s

    def _bury(self, is_alive: Callable[[str], bool], now_s: float) -> None:
        """Free what dead members held.

        1. Slots are free.
        2. Of a rate, what was in the purse may have been used and counts as that: for a minute.
        3. Of a budget, what the requests in work had reserved is given back. What was spent of it and of the purse, the
           ledger knows and members tell (`floor`).
        """
        for member in [member for member in self.leases if not is_alive(member)]:
            lease = self.leases.pop(member)
            if self.kind is LeaseKind.RATE:
                self._use(lease.held, int(now_s // SLOT_S))
            elif lease.open_period == self.period:
                self._use(-lease.open, 0)

    def _record(self, member: str, report: LeaseReport, now_s: float, delay_slots: int, *, is_same_book: bool) -> Lease:
        lease = self.leases.get(member)
        is_stranger = lease is None
        if lease is None:
            lease = self.leases[member] = Lease(amount=report.amount)
            self.amount = report.amount
        elif lease.amount != report.amount:
            lease.amount = self.amount = report.amount  # The last to change it is right: its plan is the newest.
        if self.kind in (LeaseKind.DAY, LeaseKind.MONTH) and report.period == self.period:
            if is_stranger and is_same_book:
                self.used += max(0, report.was_open)  # It was taken for dead, and lives.
            self.used = max(self.used, report.floor, report.seen if is_stranger else 0)
        present = int(now_s // SLOT_S)
        for use in report.uses:
            age_slots = max(0, use.age_slots + delay_slots)
            if age_slots < WINDOW_SLOTS or self.kind is not LeaseKind.RATE:
                self._use(use.amount, present - age_slots)
        was_unmet = lease.unmet(now_s) > 0
        lease.held = max(0, report.held)
        lease.need = max(0, report.need)
        lease.need_until_s = now_s + NEED_S
        lease.open, lease.open_period = max(0, report.open), report.period
        if not was_unmet:
            lease.since_s = now_s
        return lease

    def _use(self, amount: int, slot: int) -> None:
        if self.kind is LeaseKind.SLOTS:
            return
        if self.kind is not LeaseKind.RATE:
            self.used = max(0, self.used + amount)
        elif amount:
            before = self.slots.get(slot, 0)
            after = max(0, before + amount)  # What is taken back from before the book began was never in it.
            self.used += after - before
            self.slots[slot] = after

    def _decide_purse(
        self, member: str, lease: Lease, report: LeaseReport, now_s: float, *, may_grant: bool
    ) -> tuple[int, int]:
        """Needs are met in the order in which they arose, as far as there is; what is left is lent in small parts."""
        others = [((one.since_s, name), one.unmet(now_s)) for name, one in self.leases.items() if name != member]
        unmet = sum(short for _, short in others)
        earlier = sum(short for since, short in others if since < (lease.since_s, member))
        short, free = lease.unmet(now_s), self.free
        grant = min(short, max(0, free - earlier)) if may_grant else 0
        if lease.held + grant < report.least:
            grant = 0
        if grant:
            lease.since_s = now_s  # It goes to the end of the line, whatever it still needs.
        left = free - grant - unmet
        if may_grant and grant == short and left > 0:
            grant += max(0, min(report.want - lease.held - grant, left // (1 + len(self.leases))))
        if unmet <= free - grant:
            return grant, self.amount
        is_first = short > 0 and earlier == 0
        return grant, (lease.need if is_first else 0)

    def _decide_slots(
        self, member: str, lease: Lease, report: LeaseReport, now_s: float, *, may_grant: bool
    ) -> tuple[int, int]:
        """Members that need more than there is get fair shares; free ones are lent in small parts."""
        demands = {name: one.held + one.unmet(now_s) for name, one in self.leases.items()}
        demands[member] = lease.need
        shares = fair_shares(self.amount, demands, now_s)
        unmet = sum(
            max(0, shares[name] - one.held)
            for name, one in self.leases.items()
            if name != member and one.unmet(now_s) > 0
        )
        free, grant = max(0, self.free), 0
        if may_grant and lease.need > lease.held:
            grant = max(0, min(shares[member] - lease.held, free))
        elif may_grant:
            left = free - unmet
            grant = max(0, min(report.want - lease.held, left // (1 + len(self.leases)))) if left > 0 else 0
        return grant, (shares[member] if unmet > free - grant else self.amount)

    def _wait_s(self, short: int, now_s: float, resets_in_s: float) -> float:
        if self.kind is not LeaseKind.RATE:
            return resets_in_s
        missing = short - self.free
        for slot in sorted(self.slots):
            missing -= self.slots[slot]
            if missing <= 0:
                return (slot + WINDOW_SLOTS) * SLOT_S - now_s
        return 60.0

    def _last_reset_s(self, now_s: float) -> float:
        return (max(self.slots) + WINDOW_SLOTS) * SLOT_S - now_s if self.slots else 0.0
