"""One limit in the book; that all keepers of the book decide alike is tests/contract/test_leases.py."""

from headrace.tenancy.leases.core.pot import NEED_S, Pot
from headrace.tenancy.leases.exchange import LeaseAnswer, LeaseKind, LeaseReport, Use

NOON_AT = 1_790_251_200.0
DAY = int(NOON_AT // 86400)


class Limit:
    """A pot and who lives."""

    def __init__(self, kind: LeaseKind, amount: int = 100) -> None:
        self.pot = Pot(kind=kind, amount=amount)
        self.kind, self.amount = kind, amount
        self.living = {"a", "b"}

    def report(self, member: str, now_s: float = 0.0, *, may_grant: bool = True, **fields: object) -> LeaseAnswer:
        said: dict[str, object] = {"held": 0, "need": 0, "least": 0, "want": 0, **fields}
        report = LeaseReport(limit="l", kind=self.kind, amount=self.amount, **said)  # type: ignore[arg-type]
        return self.pot.answer(
            member, report, now_s, NOON_AT + now_s, is_alive=self.living.__contains__, may_grant=may_grant
        )


def test_needs_are_met_in_the_order_in_which_they_arose() -> None:
    """A gateway that waits for much is not overtaken by one that waits for little."""
    limit = Limit(LeaseKind.RATE)
    limit.report("a", 0.0, uses=(Use(0, 60),))
    assert limit.report("a", 1.0, need=50, least=50).grant == 0
    assert limit.report("b", 1.1, need=10, least=10).grant == 0
    assert limit.report("a", 1.2, need=30, least=30).grant == 30
    assert limit.report("b", 1.3, need=10, least=10).grant == 10


def test_a_need_that_is_not_repeated_is_over() -> None:
    """A caller that gave up does not keep others waiting."""
    limit = Limit(LeaseKind.RATE)
    limit.report("a", 0.0, uses=(Use(0, 60),))
    limit.report("a", 1.0, need=50, least=50)
    assert limit.report("b", 1.0 + NEED_S, need=10, least=10).grant == 10


def test_less_than_the_least_is_not_granted() -> None:
    """A part that serves no request stays where it can serve one."""
    limit = Limit(LeaseKind.RATE)
    limit.report("a", 0.0, uses=(Use(0, 60),))
    assert limit.report("b", 0.0, need=200, least=41).grant == 0
    assert limit.report("b", 0.1, need=200, least=40).grant == 40


def test_uses_count_for_a_minute_from_their_own_time() -> None:
    """What was used is free again 60 seconds after it was used, not after it was reported."""
    limit = Limit(LeaseKind.RATE)
    limit.report("a", 100.0, uses=(Use(40, 70),))
    assert limit.report("a", 139.9).used == 70
    assert limit.report("a", 140.5).used == 0
    assert limit.report("a", 141.0, uses=(Use(121, 5),)).used == 0, "reported too late to count"


def test_dead_members_free_slots_and_spend_purses() -> None:
    """What a dead gateway had in work is free; what it had in its purse may have been used, and counts so."""
    slots, rate = Limit(LeaseKind.SLOTS, 4), Limit(LeaseKind.RATE)
    for limit in (slots, rate):
        limit.report("a", need=4, least=1)
        limit.living.discard("a")
    assert slots.report("b", need=4, least=1).grant == 4
    assert (rate.report("b").used, rate.pot.held) == (4, 0)


def test_what_a_dead_member_had_reserved_of_a_budget_is_given_back() -> None:
    """What its requests in work had reserved nobody pays for; what was spent stays, and the ledger may know of more."""
    limit = Limit(LeaseKind.DAY)
    limit.report("a", held=10, uses=(Use(0, 70),), open=50, period=DAY)
    assert limit.report("b", 1.0, period=DAY).used == 70
    limit.living.discard("a")
    answer = limit.report("b", 2.0, period=DAY)
    assert (answer.used, answer.held_by_others, answer.free) == (20, 0, 80)
    assert limit.report("b", 3.0, floor=23, period=DAY).used == 23


def test_who_was_taken_for_dead_and_lives_has_its_reservations_again() -> None:
    """A gateway that was cut off comes back: what it settles in the end is counted once."""
    limit = Limit(LeaseKind.MONTH)
    month = limit.report("a").period
    limit.report("a", uses=(Use(0, 70),), open=50, period=month)
    limit.living.discard("a")
    assert limit.report("b", 1.0).used == 20
    limit.living.add("a")
    assert limit.report("a", 2.0, uses=(Use(0, -30),), open=0, was_open=50, period=month).used == 40


def test_reservations_of_yesterday_are_not_given_back_today() -> None:
    """They were of the budget of the day before."""
    limit = Limit(LeaseKind.DAY)
    limit.report("a", 43000.0, uses=(Use(0, 70),), open=70, period=DAY)
    limit.report("b", 43201.0, uses=(Use(0, 60),), period=DAY + 1)
    limit.living.discard("a")
    assert limit.report("b", 43202.0, period=DAY + 1).used == 60


def test_a_budget_begins_anew_at_midnight() -> None:
    """The next UTC day has the whole budget but for what is leased."""
    limit = Limit(LeaseKind.DAY)
    limit.report("a", held=10, uses=(Use(0, 90),))
    assert limit.report("a", 43199.0, held=10).free == 0
    assert limit.report("a", 43201.0, held=10).free == 90


def test_a_book_that_forgot_starts_from_the_largest_report() -> None:
    """Each gateway says what it last saw as spent; the book counts at least the most of it, once."""
    limit = Limit(LeaseKind.DAY)
    assert limit.report("a", seen=40, period=DAY, uses=(Use(0, 5),)).used == 45
    assert limit.report("b", seen=42, period=DAY, uses=(Use(0, 5),)).used == 50
    assert limit.report("b", seen=70, period=DAY).used == 50, "what it saw counts at its first report only"
    assert limit.report("a", floor=80, period=DAY - 1).used == 50, "of another day"


def test_while_a_book_settles_nothing_is_granted() -> None:
    """A fresh book takes reports in, and lends nothing."""
    limit = Limit(LeaseKind.SLOTS, 4)
    assert limit.report("a", need=2, least=1, may_grant=False).grant == 0
    assert limit.report("b", held=4, need=4).held_by_others == 0
    assert limit.pot.held == 4
