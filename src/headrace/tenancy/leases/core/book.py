"""The shared book: every limit that several processes share, and who of them lives. Kept by the coordinator."""

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

from headrace.tenancy.leases.core.pot import NEED_S, Pot
from headrace.tenancy.leases.exchange import (
    LIMITS_PER_EXCHANGE,
    MEMBERS_MAX,
    RECALLS_MAX,
    Exchange,
    ExchangeReply,
    LeaseAnswer,
    LeaseReport,
)

LIMITS_MAX = 200_000
"""Limits in the book: 10,000 keys with ten each fit. Over it, those not asked for longest are forgotten."""
SETTLE_S = 1.0
"""A book that began anew grants nothing for so long, so that all members can first say what they hold."""


class ExchangeRefusedError(Exception):
    """The exchange breaks the rules; the text says which."""


REPLIES_MAX = 4 * MEMBERS_MAX
"""Last answers kept, also of members that left: who comes back after a broken connection may ask again."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The last exchange of one member."""

    serial: int
    reply: ExchangeReply


class LeaseBook:
    """The central book.

    Concurrency: one owner. Times come as arguments: `now_s` from a clock that never jumps, `now_at` the wall clock.
    """

    def __init__(self, generation: str, *, member_s: float) -> None:
        self.generation = generation
        self._member_s = member_s
        self._members: dict[str, float] = {}  # until when each lives
        self._answered: OrderedDict[str, Answered] = OrderedDict()
        self._pots: OrderedDict[str, Pot] = OrderedDict()
        self._waited_for: OrderedDict[str, float] = OrderedDict()  # until when, the earliest first
        self._settles_at_s: float | None = None

    @property
    def members(self) -> int:
        return len(self._members)

    @property
    def limits(self) -> int:
        return len(self._pots)

    def find_pot(self, limit: str) -> Pot | None:
        return self._pots.get(limit)

    def leave(self, member: str) -> None:
        """A member is gone for certain: its slots are free at once."""
        self._members.pop(member, None)

    def exchange(self, message: Exchange, now_s: float, now_at: float) -> ExchangeReply:
        """Take one member's reports in and answer them.

        Raises: ExchangeRefusedError; then nothing has changed.
        """
        self._expire(now_s)
        known = self._answered.get(message.member)
        if known is not None and message.serial <= known.serial:
            if message.serial < known.serial:
                raise ExchangeRefusedError(f"exchange {message.serial} was overtaken by {known.serial}")
            if message.member in self._members:
                self._members[message.member] = now_s + self._member_s
            return known.reply
        if message.member not in self._members and len(self._members) >= MEMBERS_MAX:
            raise ExchangeRefusedError(f"{MEMBERS_MAX} processes share already, and no more can")
        if len(message.reports) > LIMITS_PER_EXCHANGE:
            raise ExchangeRefusedError(f"{len(message.reports)} reports; at most {LIMITS_PER_EXCHANGE} are taken")
        if message.generation and message.generation != self.generation and self._settles_at_s is None:
            self._settles_at_s = now_s + SETTLE_S
        is_settling = self._settles_at_s is not None and now_s < self._settles_at_s
        self._members[message.member] = now_s + self._member_s
        answers = [
            self._answer(message, report, now_s, now_at, may_grant=not is_settling) for report in message.reports
        ]
        reply = ExchangeReply(
            generation=self.generation,
            members=len(self._members),
            is_settling=is_settling,
            answers=tuple(answers),
            recalls=self._recalls(now_s),
        )
        self._answered[message.member] = Answered(message.serial, reply)
        self._answered.move_to_end(message.member)
        if len(self._answered) > REPLIES_MAX:
            self._answered.popitem(last=False)
        return reply

    def _answer(
        self, message: Exchange, report: LeaseReport, now_s: float, now_at: float, *, may_grant: bool
    ) -> LeaseAnswer:
        pot = self._pots.get(report.limit)
        if pot is None or pot.kind is not report.kind:
            pot = self._pots[report.limit] = Pot(kind=report.kind, amount=report.amount)
            if len(self._pots) > LIMITS_MAX:
                self._pots.popitem(last=False)
        self._pots.move_to_end(report.limit)
        answer = pot.answer(
            message.member,
            report,
            now_s,
            now_at,
            is_alive=self._members.__contains__,
            delay_slots=message.delay_slots,
            may_grant=may_grant,
            is_same_book=message.generation == self.generation,
        )
        if pot.is_waited_for(now_s):
            self._waited_for[report.limit] = now_s + NEED_S
            self._waited_for.move_to_end(report.limit)
        else:
            self._waited_for.pop(report.limit, None)
        return answer

    def _recalls(self, now_s: float) -> tuple[str, ...]:
        while self._waited_for and next(iter(self._waited_for.values())) <= now_s:
            self._waited_for.popitem(last=False)
        return tuple(islice(self._waited_for, RECALLS_MAX))

    def _expire(self, now_s: float) -> None:
        for member in [member for member, until_s in self._members.items() if now_s >= until_s]:
            del self._members[member]
