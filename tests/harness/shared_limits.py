"""Members that share limits through one book, in virtual time: callers, exchanges with a latency, losses and deaths."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.domain.quota import SLOTS, Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.tenancy.leases.core.book import LeaseBook
from headrace.tenancy.leases.exchange import Exchange, ExchangeReply

EPOCH_AT = 1_796_000_000.0
"""Wall clock at virtual time 0: 2026-11-30."""
MEMBER_S = 5.0
PAUSES_MOST = 60
"""As a request of the gateway."""


def limit(unit: Unit, name: str = "t") -> LimitId:
    return LimitId(Level.TENANT, name, unit)


@dataclass(eq=False)
class Member:
    """One gateway process."""

    name: str
    desk: LeaseDesk
    is_alive: bool = True
    is_silent: bool = False
    """Its callers come no more."""
    is_asked: bool = False
    """An exchange is under way."""
    exchanges: int = 0


@dataclass
class Used:
    """What was taken of one limit, by true time."""

    amount: int
    taken: deque[tuple[float, int]] = field(default_factory=deque)
    in_window: int = 0
    most_in_window: int = 0
    total: int = 0
    in_use: int = 0
    most_in_use: int = 0
    busy_s: float = 0.0
    """Slots in use, integrated over time."""
    since_s: float = 0.0

    def take(self, amount: int, now_s: float) -> None:
        while self.taken and self.taken[0][0] <= now_s - 60.0:
            self.in_window -= self.taken.popleft()[1]
        self.taken.append((now_s, amount))
        self.in_window += amount
        self.total += amount
        self.most_in_window = max(self.most_in_window, self.in_window)

    def hold(self, change: int, now_s: float) -> None:
        self.busy_s += self.in_use * (now_s - self.since_s)
        self.since_s = now_s
        self.in_use += change
        self.most_in_use = max(self.most_in_use, self.in_use)


class SharedLimits:
    """The world of one test."""

    def __init__(self, members: int, *, seed: int = 1, latency_s: float = 0.001, is_open: bool = True) -> None:
        self.now_s = 100.0
        self.random = random.Random(seed)
        self.latency_s = latency_s
        self.loss_ratio = 0.0
        """So many exchanges get lost on their way there, and as many on their way back."""
        self._is_open = is_open
        self.book: LeaseBook | None = LeaseBook("g1", member_s=MEMBER_S)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.members: list[Member] = []
        for index in range(members):
            self.add_member(f"m{index}")
        self.used: dict[LimitId, Used] = {}

    def add_member(self, name: str) -> Member:
        member = Member(
            name, LeaseDesk(name, is_open=self._is_open, member_s=MEMBER_S, wake=lambda: self._wake(member))
        )
        self.members.append(member)
        self.at(0.0, lambda: self._exchange(member))
        return member

    # --- time

    def at(self, in_s: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now_s + in_s, self._order, action))

    def run(self, for_s: float) -> None:
        end_s = self.now_s + for_s
        while self._events and self._events[0][0] <= end_s:
            self.now_s, _, action = heapq.heappop(self._events)
            action()
        self.now_s = end_s

    # --- exchanges

    def _wake(self, member: Member) -> None:
        if not member.is_asked:
            self.at(0.0, lambda: self._exchange(member))

    def _exchange(self, member: Member) -> None:
        if not member.is_alive or member.is_asked:
            return
        member.is_asked = True
        member.exchanges += 1
        message = member.desk.make_exchange(self.now_s)
        self.at(self.latency_s / 2, lambda: self._arrive(member, message))

    def _arrive(self, member: Member, message: Exchange) -> None:
        reply = None
        if self.book is not None and self.random.random() >= self.loss_ratio:
            reply = self.book.exchange(message, self.now_s, EPOCH_AT + self.now_s)
        if self.random.random() < self.loss_ratio:
            reply = None
        self.at(self.latency_s / 2, lambda: self._answered(member, reply))

    def _answered(self, member: Member, reply: ExchangeReply | None) -> None:
        member.is_asked = False
        if not member.is_alive:
            return
        if reply is None:
            member.desk.lose("no book", self.now_s)
        else:
            member.desk.adopt(reply, self.now_s)
        self._plan(member)

    def _plan(self, member: Member) -> None:
        made = member.exchanges

        def ask() -> None:
            if member.exchanges == made:  # else it was hurried
                self._exchange(member)

        self.at(member.desk.due_s(self.now_s), ask)

    # --- callers

    def saturate(
        self, member: Member, limit_id: LimitId, amount: int, *, callers: int, hold_s: float, uses: Callable[[], int]
    ) -> None:
        """Callers that ask again and again; each use is of `uses()`, held for about `hold_s`."""
        for _ in range(callers):
            self.at(self.random.random() * 0.01, lambda: self._call(member, limit_id, amount, hold_s, uses))

    def _call(
        self, member: Member, limit_id: LimitId, amount: int, hold_s: float, uses: Callable[[], int], parked: int = 0
    ) -> None:
        if not member.is_alive or member.is_silent:
            return
        used = self.used.setdefault(limit_id, Used(amount))
        meter = member.desk.meter(limit_id, amount, self.now_s)
        size = 1 if limit_id.unit in SLOTS else uses()

        def again() -> None:
            self._call(member, limit_id, amount, hold_s, uses)

        def resumed() -> None:
            self._call(member, limit_id, amount, hold_s, uses, parked + 1)

        wait_s = meter.wait_s(size, self.now_s)
        if wait_s > 0:
            if parked >= PAUSES_MOST or not member.desk.await_share(meter, self.now_s, resumed):
                self.at(0.02 + self.random.random() * 0.05, again)
            return
        taken_s = self.now_s
        meter.take(size, taken_s)
        used.take(size, taken_s)
        used.hold(1, taken_s)

        def done() -> None:
            used.hold(-1, self.now_s)
            if member.is_alive and limit_id.unit in SLOTS:
                meter.give_back(1, taken_s, self.now_s)
            again()

        self.at(hold_s * (0.5 + self.random.random()), done)

    def ask_once(self, member: Member, limit_id: LimitId, amount: int, size: int, spends: int) -> bool:
        """One request that needs `size` and in the end costs `spends`; whether it was served."""
        outcome: list[bool] = []
        meter = member.desk.meter(limit_id, amount, self.now_s)

        def finish(taken_s: float) -> None:
            meter.give_back(size - spends, taken_s, self.now_s)
            outcome.append(True)

        def attempt(parked: int = 0) -> None:
            if meter.wait_s(size, self.now_s) <= 0.0:
                meter.take(size, self.now_s)
                taken_s = self.now_s
                self.at(0.003, lambda: finish(taken_s))
            elif parked >= PAUSES_MOST or not member.desk.await_share(meter, self.now_s, lambda: attempt(parked + 1)):
                outcome.append(False)

        attempt()
        while not outcome:
            self.run(0.0005)
        return outcome[0]

    def kill(self, member: Member) -> None:
        """The process ends: what it had in work is cut."""
        member.is_alive = False
        if self.book is not None:
            self.book.leave(member.name)
