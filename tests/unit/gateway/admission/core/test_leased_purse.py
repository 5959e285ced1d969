"""What leased purses do beyond what every meter promises (tests/contract/test_meters.py)."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.leased_meter import CONTESTED_S
from headrace.gateway.admission.core.leased_purse import IDLE_S, LeasedPurse
from headrace.gateway.admission.core.local_meters import WallOffset
from headrace.gateway.admission.core.purse import DAY, Purse, Reservation, no_amounts
from headrace.tenancy.leases.exchange import LeaseAnswer, Use


def purse_of(unit: Unit, amount: int = 1000) -> LeasedPurse:
    desk = LeaseDesk("m", is_open=True, member_s=5.0, wake=lambda: None)
    return LeasedPurse(LimitId(Level.TENANT, "t", unit), amount, desk)


def answer(grant: int, *, keep: int = 1000, used: int = 0, resets_in_s: float = 0.0, period: int = 0) -> LeaseAnswer:
    return LeaseAnswer("", grant, keep, 0, used, 0, 0.0, resets_in_s, period)


def test_uses_are_told_once_and_with_their_age() -> None:
    """The book hears of each use in its own half second, and of what was taken back in the same one."""
    purse = purse_of(Unit.INPUT_TOKENS_PER_MIN)
    purse.adopt(answer(100), 0.0)
    purse.take(30, 0.0)
    purse.take(40, 2.0)
    purse.give_back(10, 0.0, 2.0)
    assert set(purse.report(2.0).uses) == {Use(0, 40), Use(4, 20)}
    assert purse.report(2.1).uses == ()
    purse.give_back(15, 0.0, 3.0)
    assert purse.report(3.0).uses == (Use(6, -15),)


def test_a_debt_is_the_books_from_the_next_report_on() -> None:
    """What an answer took beyond the purse is reported, and not asked for a second time."""
    purse = purse_of(Unit.OUTPUT_TOKENS_PER_MIN)
    purse.adopt(answer(10), 0.0)
    purse.charge(25, 0.0)
    assert purse.purse == -15
    report = purse.report(0.0)
    assert (report.held, report.uses) == (0, (Use(0, 25),))
    assert purse.purse == 0


def test_a_purse_follows_its_use() -> None:
    """What is kept ahead is what was lately used, and nothing once nobody asks."""
    purse = purse_of(Unit.INPUT_TOKENS_PER_MIN, amount=1_000_000)
    purse.adopt(answer(100_000, keep=1_000_000), 0.0)
    purse.report(0.0)
    purse.adopt(answer(100_000, keep=1_000_000), 0.0)
    for tenth in range(1, 30):
        purse.take(100, tenth / 10)
        purse.report(tenth / 10)
        purse.purse = max(purse.purse, 1000)
    assert 200 <= purse.report(3.0).held <= 600
    assert purse.report(3.0 + IDLE_S).held == 0


def test_what_others_wait_for_goes_back() -> None:
    """A purse that the book calls back is given back with the next report, but for a need of our own."""
    purse = purse_of(Unit.REQUESTS_PER_MIN)
    purse.adopt(answer(50), 0.0)
    purse.take(1, 0.0)
    purse.recall(0.0)
    assert purse.report(0.0).held == 0


def test_a_spent_budget_of_yesterday_is_not_given_back_today() -> None:
    """What was taken before midnight belongs to the day before, whatever it cost in the end."""
    purse = purse_of(Unit.BUDGET_PER_DAY)
    purse.adopt(answer(500, used=0, resets_in_s=10.0, period=20787), 0.0)
    purse.take(200, 5.0)
    purse.report(5.0)
    purse.adopt(answer(0, used=0, resets_in_s=86395.0, period=20788), 15.0)
    purse.give_back(150, 5.0, 16.0)
    assert purse.report(16.0).uses == ()
    purse.take(10, 17.0)
    purse.give_back(4, 17.0, 18.0)
    assert purse.report(18.0).uses == (Use(0, 6),)


def test_what_is_only_reserved_of_a_budget_is_told() -> None:
    """From the reservation over its growth to its end; the book hears what it was told last, too."""
    purse = purse_of(Unit.BUDGET_PER_DAY)
    purse.adopt(answer(500, resets_in_s=1000.0, period=20787), 0.0)
    whole = Purse([purse], None)
    amounts = no_amounts()
    amounts[DAY] = 200
    reservation = whole.try_reserve(amounts, 1.0)
    assert isinstance(reservation, Reservation)
    report = purse.report(1.0)
    assert (report.uses, report.open, report.was_open) == ((Use(0, 200),), 200, 0)
    grown = no_amounts()
    grown[DAY] = 250
    reservation.grow(grown, 2.0)
    report = purse.report(2.0)
    assert (report.uses, report.open, report.was_open) == ((Use(0, 50),), 250, 200)
    spent = no_amounts()
    spent[DAY] = 250
    purse.is_listed = False
    reservation.settle(spent, 3.0)
    assert purse.is_listed, "the book hears of it though nothing comes back"
    report = purse.report(3.0)
    assert (report.uses, report.open, report.was_open) == ((), 0, 250)


def test_reservations_of_yesterday_are_no_longer_told() -> None:
    """They are settled against the budget of the day before."""
    purse = purse_of(Unit.BUDGET_PER_DAY)
    purse.adopt(answer(500, resets_in_s=10.0, period=20787), 0.0)
    purse.take(200, 5.0)
    purse.begin(200)
    purse.adopt(answer(500, resets_in_s=86395.0, period=20788), 15.0)
    purse.take(30, 16.0)
    purse.begin(30)
    purse.end(200, 5.0, 17.0)
    assert purse.report(17.0).open == 30


def test_a_new_book_hears_of_the_rest_of_the_minute() -> None:
    """What was told to the book before is told again, without what the new one has been told already."""
    purse = purse_of(Unit.INPUT_TOKENS_PER_MIN)
    purse.adopt(answer(100), 0.0)
    purse.take(30, 0.0)
    purse.report(0.1)
    purse.take(5, 10.0)
    told = purse.report(10.0)
    purse.retell(told, 10.0, 10.1)
    assert purse.report(10.1).uses == (Use(20, 30),)
    assert purse.report(10.2).uses == ()


NOON_AT = 1_790_251_200.0


def alone(spent: int | None = None, *, among: int = 2) -> LeasedPurse:
    """The purse of a budget of 1000 whose worker has never reached the book, and was told what was spent before."""
    desk = LeaseDesk(
        "m", is_open=True, member_s=5.0, wake=lambda: None, least_members=among, wall=WallOffset(NOON_AT, 0.0)
    )
    day = LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY)
    if spent is not None:
        desk.raise_spent(day, spent, NOON_AT)
    desk.lose("gone", 0.0)
    purse = desk.meter(day, 1000, 0.0)
    assert isinstance(purse, LeasedPurse)
    return purse


def test_without_a_book_we_give_our_part_of_what_the_ledger_leaves() -> None:
    """Of a budget that is spent nothing, of one that is half spent half of the rest."""
    assert [alone(spent).purse for spent in (None, 0, 500, 1000, 1200)] == [500, 500, 250, 0, 0]


def test_what_the_ledger_says_later_lowers_what_we_may_still_give() -> None:
    """Others have spent too, or those that we replace; never does it raise it, and less than known changes nothing."""
    purse = alone()
    purse.take(100, 1.0)
    purse.raise_spent(400, NOON_AT)
    assert (purse.purse, purse.used(1.0)) == (300, 400)
    purse.raise_spent(300, NOON_AT)
    purse.raise_spent(420, NOON_AT)
    assert purse.purse == 290
    purse.raise_spent(1000, NOON_AT)
    assert purse.wait_s(1, 2.0) > 0.0


def test_a_part_that_is_spent_is_not_a_budget_that_is() -> None:
    """Others may have something left: that is refused for the moment, a spent budget until its day ends."""
    purse = alone()
    purse.take(500, 1.0)
    assert purse.wait_s(1, 1.0) == CONTESTED_S
    purse.raise_spent(1000, NOON_AT)
    assert purse.wait_s(1, 1.0) == 43199.0, "by our own clock, which says noon at 0.0"


def test_what_is_reserved_is_a_part_of_what_we_may_give() -> None:
    """What requests in work give back at their end is no more than is left of the budget by then."""
    purse = alone()
    purse.take(400, 1.0)
    purse.begin(400)
    purse.raise_spent(1000, NOON_AT)
    purse.give_back(350, 1.0, 2.0)
    purse.end(400, 1.0, 2.0)
    assert purse.wait_s(1, 2.0) > 0.0


def test_the_part_of_the_next_day_is_a_part_of_that_day() -> None:
    """The ledger speaks of another day: what was spent the day before counts no more, and is not told to the book."""
    purse = alone(1000)
    purse.charge(30, 1.0)
    purse.raise_spent(200, NOON_AT + 86400.0)
    assert (purse.purse, purse.used(2.0), purse.report(2.0).uses) == (400, 200, ())
