"""A leased share of a limit on what is in work at once. See `leased_meter.py`."""

from headrace.domain.quota import LimitId
from headrace.domain.quota_status import SlotsHere
from headrace.gateway.admission.core.leased_meter import ASKING_S, EXACT_MAX, NEVER_S, Desk, LeasedMeter
from headrace.gateway.admission.core.local_meters import FIRST_HOLD_S, HOLD_WEIGHT
from headrace.tenancy.leases.exchange import LeaseAnswer, LeaseReport

IDLE_S = 1.0
"""Free slots of a limit that nobody used for so long go back."""


class LeasedSlots(LeasedMeter):
    """Implements `Meter` for what is held while a request is in work."""

    __slots__ = ("_asked", "_hold_s", "held", "in_use")

    def __init__(self, limit_id: LimitId, amount: int, desk: Desk) -> None:
        super().__init__(limit_id, amount, desk)
        self.in_use = 0
        self.held = 0
        self._asked = 0
        self._hold_s = FIRST_HOLD_S

    def wait_s(self, amount: int, now_mono_s: float) -> float:
        wanted = self.in_use + amount
        if wanted <= self.held and wanted <= self._keep:
            return 0.0
        if amount > self.amount:
            return NEVER_S
        among = self._desk.alone_among
        if among and wanted <= max(self.held, max(1, self.amount // among)):
            return 0.0
        self._miss(amount, now_mono_s)
        if self.is_asking(now_mono_s):
            return ASKING_S
        return self._hold_s / self.amount

    def take(self, amount: int, now_mono_s: float) -> None:
        self.in_use += amount
        self._used_mono_s = now_mono_s
        self._need_until_mono_s = 0.0
        if not self.is_listed:
            self._desk.list_meter(self)

    charge = take

    def give_back(self, amount: int, taken_mono_s: float, now_mono_s: float) -> None:
        self.in_use -= min(amount, self.in_use)
        self._hold_s += HOLD_WEIGHT * (now_mono_s - taken_mono_s - self._hold_s)
        if not self.is_listed:
            self._desk.list_meter(self)
        if self.held > self._keep:
            self._desk.hurry()

    def used(self, now_mono_s: float) -> int:
        return self.in_use + self._held_by_others

    def here(self, now_mono_s: float) -> SlotsHere:
        """Our share, and what is known of the others'."""
        told_s = None if self._answered_mono_s is None else now_mono_s - self._answered_mono_s
        return SlotsHere(in_use=self.in_use, held=self.held, held_by_others=self._held_by_others, told_s=told_s)

    def reset_s(self, now_mono_s: float) -> float:
        return self._hold_s if self.in_use or self._held_by_others else 0.0

    @property
    def is_unused(self) -> bool:
        return not self.in_use

    @property
    def holds_anything(self) -> bool:
        return self.held > 0 or self.in_use > 0

    @property
    def is_used_elsewhere(self) -> bool:
        return self._held_by_others > 0

    def recall(self, now_mono_s: float) -> None:
        """As of every meter; where all is in use there is nothing to give back, and no reason for an exchange."""
        if self.held > self.in_use:
            super().recall(now_mono_s)

    def report(self, now_mono_s: float) -> LeaseReport:
        """Say what is held, after letting go of what is not needed."""
        in_use, need, self._asked = self.in_use, 0, 0
        is_active = in_use > 0 or now_mono_s - self._used_mono_s < IDLE_S
        is_lent_ahead = is_active and not self._is_recalled and not self.is_leaving
        want = in_use + 1 + in_use // 4 if is_lent_ahead else in_use
        if self.is_in_need(now_mono_s):
            self._asked = in_use + max(1, self._short)
            need = min(self._asked, self.amount)
            want = max(want, need)
        self.held = max(in_use, min(self.held, want, self._keep))
        self._short = 0
        return LeaseReport(
            limit=self.text,
            kind=self.kind,
            amount=min(self.amount, EXACT_MAX),
            held=self.held,
            need=max(need, in_use),
            least=need and in_use + 1,
            want=want,
        )

    def adopt(self, answer: LeaseAnswer, now_mono_s: float) -> None:
        """Take on what the book granted."""
        self.held += answer.grant
        is_enough = min(self.held, self._keep) >= self._asked
        self._hear(answer, now_mono_s, is_enough=is_enough, is_elsewhere=answer.held_by_others > 0)

    def go_alone(self, among: int) -> None:
        """The book does not answer: nothing to prepare."""

    def expire(self) -> None:
        """The book has given up on us: free slots are no longer ours."""
        self.held, self._keep = self.in_use, EXACT_MAX

    def retell(self, told: LeaseReport | None, told_mono_s: float, now_mono_s: float) -> None:
        """The book began anew: it hears of everything again."""

    def __repr__(self) -> str:
        return f"LeasedSlots({self.in_use} of {self.held} leased of {self.amount}, {self.limit_id.unit.value})"
