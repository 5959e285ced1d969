"""Meters that keep a local share of a limit: taken from without I/O, and filled by exchanges with the shared book.

What both kinds have in common; `leased_slots.py` counts what is in work, `leased_purse.py` what is used up.
Counterparts: `lease_desk.py`, which makes exchanges of them, and `tenancy/leases/`, where the book is.
"""

from abc import ABC, abstractmethod
from typing import Protocol

from headrace.domain.quota import SLOTS, LimitId, Unit
from headrace.gateway.admission.core.local_meters import WallOffset
from headrace.tenancy.leases.exchange import LeaseAnswer, LeaseKind, LeaseReport

NEVER_S = float("inf")
ASKING_S = 0.02
"""The wait that a meter states while it asks the book: about one exchange."""
NEED_S = 0.25
"""For so long after a request was refused its need is told to the book: callers that try again find a share."""
DENIED_S = 0.04
"""For so long the book's refusal stands: two exchanges of a member in need."""
CONFIRM_S = 0.03
"""The book's first refusal is asked again so soon: another member may not have told yet what it gave back."""
PATIENCE_S = 0.6
"""A request waits so long for what others hold unused: they hear within 0.1 s that somebody waits for it."""
SLOTS_PATIENCE_S = 0.25
"""As PATIENCE_S, for slots: of these nobody can tell from outside whether they are in use, and they mostly are."""
CONTESTED_S = 1.0
"""The wait that a refusal states where others held unused what was needed."""
EXACT_MAX = 2**53 - 1
"""Largest amount: numbers in Redis' scripts are exact up to it."""
KINDS = {Unit.BUDGET_PER_DAY: LeaseKind.DAY, Unit.BUDGET_PER_MONTH: LeaseKind.MONTH}


def kind_of(unit: Unit) -> LeaseKind:
    """How a unit is shared."""
    return LeaseKind.SLOTS if unit in SLOTS else KINDS.get(unit, LeaseKind.RATE)


def text_of(limit_id: LimitId) -> str:
    """The limit's name in the book."""
    return f"{limit_id.level.value}:{limit_id.unit.value}:{limit_id.name}"


class Desk(Protocol):
    """What a meter needs of the exchanges it is part of."""

    alone_among: int
    """0: the book answers. Otherwise it does not, and each of so many members serves by its own part of a limit."""
    members: int
    """So many share, this one included."""
    is_closed: bool
    """The book does not answer, and nothing is to be served without it."""
    need_until_mono_s: float
    """Until when some meter is in need."""
    wall: WallOffset
    """Our own clock, by which a period ends as long as the book's is unknown."""

    def list_meter(self, meter: "LeasedMeter") -> None:
        """Report this meter in one of the next exchanges."""
        ...

    def hurry(self) -> None:
        """Make the next exchange at once."""
        ...


class LeasedMeter(ABC):
    """What slots and purses have in common: needs, and the book's last word."""

    __slots__ = (
        "_answered_mono_s",
        "_asking_since_mono_s",
        "_denied_until_mono_s",
        "_desk",
        "_held_by_others",
        "_is_contested",
        "_is_hoping",
        "_is_recalled",
        "_keep",
        "_least",
        "_need_until_mono_s",
        "_retry_mono_s",
        "_short",
        "_used_mono_s",
        "amount",
        "is_leaving",
        "is_listed",
        "kind",
        "limit_id",
        "text",
    )

    def __init__(self, limit_id: LimitId, amount: int, desk: Desk) -> None:
        self.limit_id = limit_id
        self.text = text_of(limit_id)
        self.kind = kind_of(limit_id.unit)
        self.is_listed = False
        self.is_leaving = False
        """Its limit is no longer declared: one last report gives everything back."""
        self.amount = amount
        self._desk = desk
        self._short = 0
        """Sum of what requests found missing since the last exchange."""
        self._least = 0
        """The smallest of these."""
        self._need_until_mono_s = 0.0
        self._denied_until_mono_s = 0.0
        self._asking_since_mono_s = 0.0
        """Since when requests found too little here."""
        self._is_contested = False
        """At the last answer, what is free and what others hold would have been enough."""
        self._is_hoping = False
        """The book had too little, and may have more at one of the next exchanges."""
        self._retry_mono_s = 0.0
        self._used_mono_s = 0.0
        self._answered_mono_s: float | None = None
        self._held_by_others = 0
        self._keep = EXACT_MAX
        """Most that may be held: others wait for the rest."""
        self._is_recalled = False
        """Others wait: the next report lends nothing ahead."""

    # --- exchanges

    @property
    @abstractmethod
    def holds_anything(self) -> bool:
        """The book has to know of it."""

    @property
    @abstractmethod
    def is_used_elsewhere(self) -> bool:
        """At the last answer others used or held some of it."""

    @abstractmethod
    def report(self, now_mono_s: float) -> LeaseReport:
        """Say what was used and what is held, after letting go of what is not needed."""

    @abstractmethod
    def adopt(self, answer: LeaseAnswer, now_mono_s: float) -> None:
        """Take on what the book granted and knows."""

    @abstractmethod
    def go_alone(self, among: int) -> None:
        """The book does not answer, and `among` members each serve by their own part."""

    @abstractmethod
    def expire(self) -> None:
        """The book has given up on us: what is not in use is no longer ours."""

    @abstractmethod
    def retell(self, told: LeaseReport | None, told_mono_s: float, now_mono_s: float) -> None:
        """The book began anew with what was `told` at that time: it has to hear of everything else again."""

    # --- needs

    def is_asking(self, now_mono_s: float) -> bool:
        """The book has not answered yet what requests found missing, or may answer better soon: worth waiting for."""
        desk = self._desk
        return bool(self._short) and not desk.alone_among and not desk.is_closed and not self._is_denied(now_mono_s)

    def is_in_need(self, now_mono_s: float) -> bool:
        """Some request found too little here a moment ago."""
        return self._short > 0 or now_mono_s < self._need_until_mono_s

    def recall(self, now_mono_s: float) -> None:
        """Some member waits for this limit: give back what is not needed here."""
        if not self.is_in_need(now_mono_s):
            self._is_recalled = True
            self._desk.list_meter(self)
            self._desk.hurry()

    def _is_denied(self, now_mono_s: float) -> bool:
        return now_mono_s < self._denied_until_mono_s

    def _miss(self, amount: int, now_mono_s: float) -> None:
        """A request needs `amount`, and it is not here."""
        self._least = min(self._least, amount) if self._short else amount
        self._short += amount
        if now_mono_s >= self._need_until_mono_s:
            self._asking_since_mono_s, self._is_hoping = now_mono_s, False
        self._need_until_mono_s = self._desk.need_until_mono_s = now_mono_s + NEED_S
        self._desk.list_meter(self)
        if not self._is_hoping and not self._is_denied(now_mono_s):
            self._desk.hurry()

    def _hear(self, answer: LeaseAnswer, now_mono_s: float, *, is_enough: bool, is_elsewhere: bool) -> None:
        """The book's word on what was missing at the last report. `is_elsewhere`: others may have it, and not use it.

        Those others hear of the need with their next exchange, and answer it at once: until then nothing is certain.
        """
        self._answered_mono_s = now_mono_s
        self._held_by_others = answer.held_by_others
        self._keep = EXACT_MAX if answer.keep >= self.amount else answer.keep
        self._is_recalled = False
        if is_enough:
            self._asking_since_mono_s = now_mono_s
        self._is_contested = not is_enough and is_elsewhere
        longest_s = SLOTS_PATIENCE_S if self.kind is LeaseKind.SLOTS else PATIENCE_S
        patience_s = longest_s if is_elsewhere else CONFIRM_S if self._desk.members > 1 else 0.0
        self._is_hoping = not is_enough and now_mono_s - self._asking_since_mono_s < patience_s
        self._denied_until_mono_s = 0.0 if is_enough or self._is_hoping else now_mono_s + DENIED_S
        self._retry_mono_s = now_mono_s + answer.wait_s
