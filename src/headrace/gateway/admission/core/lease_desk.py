"""All leased meters of one worker, and the exchanges they make with the shared book. Pure; `sharing/keeper.py` sends.

States: the book answers; or it is lost (or has just begun anew), and the declared policy holds: `open`, each member
serves by its part of every limit, or `closed`, nothing is taken that is not leased.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.domain.quota import SLOTS, LimitId
from headrace.gateway.admission.core.leased_meter import LeasedMeter
from headrace.gateway.admission.core.leased_purse import LeasedPurse
from headrace.gateway.admission.core.leased_slots import LeasedSlots
from headrace.gateway.admission.core.local_meters import WallOffset
from headrace.gateway.admission.core.meter import Meter
from headrace.tenancy.leases.exchange import LIMITS_PER_EXCHANGE, SLOT_S, Exchange, ExchangeReply, LeaseAnswer

NEED_EVERY_S = 0.02
"""Between two exchanges of a member in need."""
USE_EVERY_S = 0.1
"""Between two exchanges of a member that uses what it has."""
IDLE_EVERY_S = 0.1
"""Between two exchanges of a member that only holds something: so soon it hears that others wait."""
NOTHING_EVERY_S = 1.0
"""Between two signs of life of a member that holds nothing."""
RETRY_S = 0.2
"""Between two attempts to reach a lost book."""
REFRESH_S = 5.0
"""What is held or used elsewhere is reported on so often: the book forgets nothing, and figures stay fresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFigures:
    """How sharing stands, for status and metrics."""

    is_lost: bool
    trouble: str
    members: int
    exchanges: int
    failures: int
    losses: int
    parked: int


class LeaseDesk:
    """Implements `MeterFactory` where limits are shared, and the meters' `Desk`.

    Concurrency: event loop only.
    """

    def __init__(
        self,
        member: str,
        *,
        is_open: bool,
        member_s: float,
        wake: Callable[[], None],
        members: int = 1,
        least_members: int = 1,
        wall: WallOffset | None = None,
    ) -> None:
        """`members`: that share, as known before the book has answered; `least_members`: never fewer, whatever it says:
        one that has just begun has not met them all.
        """
        self._member = member
        self._least_members = least_members
        self.wall = wall or WallOffset(0.0, 0.0)
        self._is_open = is_open
        self._member_s = member_s
        self._wake = wake
        """Called when the next exchange should be made at once."""
        self.need_until_mono_s = 0.0
        self.alone_among = 0
        self.is_closed = False
        self.trouble = ""
        self.members = max(1, members)
        self.exchanges = self.failures = self.losses = 0
        self._meters: dict[LimitId, LeasedSlots | LeasedPurse] = {}
        self._texts: dict[str, LeasedMeter] = {}
        self._listed: dict[LeasedMeter, None] = {}
        self._spent: dict[LimitId, tuple[int, float]] = {}
        self._parked: list[Callable[[], None]] = []
        self._serial = 0
        self._generation = ""
        self._pending: Exchange | None = None
        self._made_mono_s = self._pending_mono_s = 0.0
        self._answered_mono_s: float | None = None
        self._refreshed_mono_s = 0.0
        self._is_expired = False

    # --- MeterFactory

    def meter(self, limit_id: LimitId, amount: int, now_mono_s: float) -> Meter:
        meter = self._meters.get(limit_id)
        if meter is None:
            kind = LeasedSlots if limit_id.unit in SLOTS else LeasedPurse
            meter = self._meters[limit_id] = kind(limit_id, amount, self)
            self._texts[meter.text] = meter
            spent = self._spent.get(limit_id)
            if spent is not None and isinstance(meter, LeasedPurse):
                meter.raise_spent(*spent)
            if self.alone_among:
                meter.go_alone(self.alone_among)
        if meter.amount != amount:
            meter.amount = amount
            self.list_meter(meter)
        meter.is_leaving = False
        return meter

    def raise_spent(self, limit_id: LimitId, spent: int, period_start_at: float) -> None:
        self._spent[limit_id] = (spent, period_start_at)
        meter = self._meters.get(limit_id)
        if isinstance(meter, LeasedPurse):
            meter.raise_spent(spent, period_start_at)

    def keep_only(self, limit_ids: frozenset[LimitId]) -> None:
        for limit_id, meter in list(self._meters.items()):
            if limit_id in limit_ids:
                continue
            if meter.holds_anything:
                meter.is_leaving = True
                self.list_meter(meter)
            else:
                self._forget(meter)
        for limit_id in [known for known in self._spent if known not in limit_ids]:
            del self._spent[limit_id]

    def find_outage(self) -> str | None:
        return self.trouble if self.is_closed else None

    def await_share(self, meter: Meter, now_mono_s: float, resume: Callable[[], None]) -> bool:
        """Call `resume` after the next exchange, where that may end a shortage of `meter`; False: it would not."""
        if not isinstance(meter, LeasedSlots | LeasedPurse) or not meter.is_asking(now_mono_s):
            return False
        self._parked.append(resume)
        return True

    # --- Desk

    def list_meter(self, meter: LeasedMeter) -> None:
        if not meter.is_listed:
            meter.is_listed = True
            self._listed[meter] = None

    def hurry(self) -> None:
        if not self.trouble:
            self._wake()

    # --- exchanges

    def due_s(self, now_mono_s: float) -> float:
        """Seconds until the next exchange, unless somebody hurries."""
        if self.trouble:
            every_s = RETRY_S
        elif now_mono_s < self.need_until_mono_s:
            every_s = NEED_EVERY_S
        elif self._listed:
            every_s = USE_EVERY_S
        elif self._generation and not any(meter.holds_anything for meter in self._meters.values()):
            every_s = NOTHING_EVERY_S
        else:
            every_s = IDLE_EVERY_S
        return max(0.0, self._made_mono_s + every_s - now_mono_s)

    def make_exchange(self, now_mono_s: float) -> Exchange:
        """The next message to the book; the last one again, where it was not answered."""
        if self._pending is not None:
            delay_slots = int((now_mono_s - self._pending_mono_s) / SLOT_S)
            self._made_mono_s = now_mono_s
            last = self._pending
            return Exchange(last.member, last.serial, last.generation, delay_slots, last.reports)
        if now_mono_s - self._refreshed_mono_s > REFRESH_S:
            self._refreshed_mono_s = now_mono_s
            self._list_holders()
        meters = [meter for meter, _ in zip(self._listed, range(LIMITS_PER_EXCHANGE), strict=False)]
        for meter in meters:
            del self._listed[meter]
            meter.is_listed = False
        self._serial += 1
        reports = tuple(meter.report(now_mono_s) for meter in meters)
        self._pending = Exchange(self._member, self._serial, self._generation, 0, reports)
        self._made_mono_s = self._pending_mono_s = now_mono_s
        return self._pending

    def adopt(self, reply: ExchangeReply, now_mono_s: float) -> None:
        """The book has answered."""
        sent, self._pending = self._pending, None
        self.exchanges += 1
        # A book that has just begun does not know all members yet.
        self.members = max(self.members if reply.is_settling else 1, reply.members)
        self._answered_mono_s, self._is_expired = now_mono_s, False
        if self.alone_among and not reply.is_settling:
            self._come_back()
        for answer in reply.answers:
            meter = self._texts.get(answer.limit)
            if meter is not None:
                self._adopt_one(meter, answer, now_mono_s)
        if reply.generation != self._generation:
            if self._generation and sent is not None:
                self._retell(sent, now_mono_s)
            self._generation = reply.generation
        self._set_trouble("the book began anew and waits for all members" if reply.is_settling else "")
        for limit in reply.recalls:
            meter = self._texts.get(limit)
            if meter is not None and meter.holds_anything:
                meter.recall(now_mono_s)
        self._release()

    def lose(self, reason: str, now_mono_s: float) -> None:
        """The book could not be reached."""
        self.failures += 1
        since_mono_s = self._answered_mono_s
        if not self._is_expired and since_mono_s is not None and now_mono_s - since_mono_s >= self._member_s:
            self._is_expired = True
            for meter in self._meters.values():
                meter.expire()
        self._set_trouble(reason)
        self._release()

    def leave(self) -> bool:
        """Report everything as given back; False once there is nothing left to report."""
        for meter in self._meters.values():
            meter.is_leaving = True
            if meter.holds_anything:
                self.list_meter(meter)
        return bool(self._listed)

    def figures(self) -> SharingFigures:
        return SharingFigures(
            is_lost=bool(self.trouble),
            trouble=self.trouble,
            members=self.members,
            exchanges=self.exchanges,
            failures=self.failures,
            losses=self.losses,
            parked=len(self._parked),
        )

    # --- inside

    def _adopt_one(self, meter: LeasedMeter, answer: LeaseAnswer, now_mono_s: float) -> None:
        meter.adopt(answer, now_mono_s)
        if meter.is_leaving and not meter.holds_anything:
            self._forget(meter)
        elif meter.is_in_need(now_mono_s) or (isinstance(meter, LeasedPurse) and meter.purse > 0):
            self.list_meter(meter)

    def _forget(self, meter: LeasedMeter) -> None:
        self._meters.pop(meter.limit_id, None)
        self._texts.pop(meter.text, None)
        self._listed.pop(meter, None)
        meter.is_listed = False

    def _list_holders(self) -> None:
        for meter in self._meters.values():
            if meter.holds_anything or meter.is_used_elsewhere:
                self.list_meter(meter)

    def _retell(self, sent: Exchange, now_mono_s: float) -> None:
        """Another book: it must hear of everything that the last one knew."""
        told = {report.limit: report for report in sent.reports}
        for meter in self._meters.values():
            meter.retell(told.get(meter.text), self._pending_mono_s, now_mono_s)
        self._list_holders()
        self.hurry()

    def _set_trouble(self, reason: str) -> None:
        was_lost, self.trouble = bool(self.trouble), reason
        if not reason:
            self.is_closed = False
            return
        if not was_lost:
            self.losses += 1
            self.is_closed = not self._is_open
            if self._is_open:
                self.alone_among = max(self.members, self._least_members)
                for meter in self._meters.values():
                    meter.go_alone(self.alone_among)

    def _come_back(self) -> None:
        """The book answers again: it hears at once of what was taken without it, and what is left of our part is its
        to grant.
        """
        self._list_holders()
        self.alone_among = 0
        for meter in self._meters.values():
            meter.expire()

    def _release(self) -> None:
        """Those that waited for an exchange look again: each finds its share, or that there is none."""
        parked, self._parked = self._parked, []
        for resume in parked:
            resume()
