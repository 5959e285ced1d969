"""What leased purses do beyond what every meter promises (tests/contract/test_meters.py)."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.leased_purse import IDLE_S, LeasedPurse
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
