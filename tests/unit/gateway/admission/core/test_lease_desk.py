"""The exchanges of one worker; what meters promise is tests/contract/test_meters.py, many workers are in property/."""

import pytest

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import NEED_EVERY_S, NOTHING_EVERY_S, RETRY_S, USE_EVERY_S, LeaseDesk
from headrace.gateway.admission.core.leased_meter import CONTESTED_S, PATIENCE_S
from headrace.tenancy.leases.core.book import LeaseBook
from headrace.tenancy.leases.exchange import LIMITS_PER_EXCHANGE

RATE, SLOTS, DAY = Unit.REQUESTS_PER_MIN, Unit.CONCURRENT_REQUESTS, Unit.BUDGET_PER_DAY
NOON_AT = 1_790_251_200.0


def limit(unit: Unit, name: str = "t") -> LimitId:
    return LimitId(Level.TENANT, name, unit)


class Worker:
    """One worker's desk with a book."""

    def __init__(self, *, is_open: bool = True, member_s: float = 5.0) -> None:
        self.woken = 0
        self.desk = LeaseDesk("m", is_open=is_open, member_s=member_s, wake=self._wake)
        self.book = LeaseBook("g1", member_s=member_s)

    def _wake(self) -> None:
        self.woken += 1

    def exchange(self, now_s: float) -> int:
        """One exchange; how many limits it reported on."""
        message = self.desk.make_exchange(now_s)
        self.desk.adopt(self.book.exchange(message, now_s, NOON_AT + now_s), now_s)
        return len(message.reports)


def test_a_request_waits_for_one_exchange_and_no_longer() -> None:
    """The first request of a limit asks at once, waits for the answer, and finds its share."""
    worker = Worker()
    meter, resumed = worker.desk.meter(limit(RATE), 10, 0.0), []
    assert 0.0 < meter.wait_s(1, 0.0) < 0.1
    assert worker.desk.await_share(meter, 0.0, lambda: resumed.append("now"))
    assert worker.woken == 1
    worker.exchange(0.001)
    assert resumed == ["now"]
    assert meter.wait_s(1, 0.001) == 0.0


def test_a_shortage_that_the_book_confirmed_is_not_waited_for() -> None:
    """When the whole limit is used, callers are refused at once, with the wait that the book named."""
    worker = Worker()
    meter = worker.desk.meter(limit(RATE), 2, 0.0)
    meter.wait_s(1, 0.0)
    worker.exchange(0.0)
    meter.take(2, 0.0)
    meter.wait_s(1, 1.0)
    worker.exchange(1.0)
    assert not worker.desk.await_share(meter, 1.0, lambda: None)
    assert 59.0 < meter.wait_s(1, 1.0) <= 60.5


def test_exchanges_are_as_frequent_as_needed() -> None:
    """Every 20 ms in need, ten times a second in use, once a second when there is nothing to say."""
    worker = Worker()
    worker.exchange(0.0)
    assert worker.desk.due_s(0.0) == NOTHING_EVERY_S
    meter = worker.desk.meter(limit(RATE), 100, 0.0)
    meter.wait_s(1, 0.0)
    worker.exchange(0.0)
    assert worker.desk.due_s(0.0) == NEED_EVERY_S
    meter.take(1, 0.5)
    worker.exchange(0.5)
    assert worker.desk.due_s(0.5) == pytest.approx(USE_EVERY_S)
    worker.desk.lose("gone", 0.6)
    assert worker.desk.due_s(0.5) == pytest.approx(RETRY_S)


def test_an_unanswered_exchange_is_sent_again() -> None:
    """The same message with its age, so that the book can count it once and in its own time."""
    worker = Worker()
    meter = worker.desk.meter(limit(RATE), 10, 0.0)
    meter.take(3, 0.0)
    first = worker.desk.make_exchange(0.0)
    worker.desk.lose("no answer", 0.5)
    again = worker.desk.make_exchange(2.0)
    assert (again.serial, again.reports, again.delay_slots) == (first.serial, first.reports, 4)


def test_more_limits_than_fit_into_one_exchange_take_turns() -> None:
    """Ten thousand keys in use do not make a message without bound."""
    worker = Worker()
    for index in range(LIMITS_PER_EXCHANGE + 5):
        worker.desk.meter(limit(RATE, f"t{index}"), 10, 0.0).take(1, 0.0)
    assert worker.exchange(0.0) == LIMITS_PER_EXCHANGE
    assert worker.exchange(0.1) >= 5


def test_unused_shares_go_back() -> None:
    """A gateway that nobody calls any more holds nothing."""
    worker = Worker()
    for unit in (RATE, SLOTS, DAY):
        meter = worker.desk.meter(limit(unit), 100, 0.0)
        meter.wait_s(1, 0.0)
        worker.exchange(0.0)
        meter.take(1, 0.0)
        if unit is SLOTS:
            meter.give_back(1, 0.0, 0.0)
    for tenth in range(1, 300):
        worker.exchange(tenth / 10)
    assert [worker.book.find_pot(text).held for text in TEXTS] == [0, 0, 0]  # type: ignore[union-attr]


TEXTS = ("tenant:requests_per_min:t", "tenant:concurrent_requests:t", "tenant:budget_per_day:t")


def test_without_a_book_an_open_member_has_its_part_of_everything() -> None:
    """Fail open: the limit divided by the members last known, of budgets what was left divided by them."""
    worker = Worker()
    other = LeaseDesk("other", is_open=True, member_s=5.0, wake=lambda: None)
    worker.book.exchange(other.make_exchange(0.0), 0.0, NOON_AT)
    spent = worker.desk.meter(limit(DAY), 100, 0.0)
    spent.take(40, 0.0)
    worker.exchange(0.0)
    worker.desk.lose("gone", 1.0)
    assert worker.desk.alone_among == 2
    slots, rate = worker.desk.meter(limit(SLOTS), 6, 1.0), worker.desk.meter(limit(RATE), 10, 1.0)
    assert (slots.wait_s(3, 1.0), slots.wait_s(4, 1.0) > 0.0) == (0.0, True)
    assert (rate.wait_s(5, 1.0), spent.wait_s(45, 1.0)) == (0.0, 0.0), "30 were leased, 30 of 60 were not"
    rate.take(5, 1.0)
    assert rate.wait_s(1, 1.0) > 0.0
    assert spent.wait_s(46, 1.0) > 0.0
    assert worker.desk.find_outage() is None


def test_our_part_of_a_budget_outlives_the_books_patience() -> None:
    """However long the book is lost, nobody else has our part: it can be spent to its end, and not beyond."""
    worker = Worker(member_s=5.0)
    spent = worker.desk.meter(limit(DAY), 100, 0.0)
    spent.wait_s(40, 0.0)
    worker.exchange(0.0)
    spent.take(40, 0.0)
    worker.exchange(0.1)
    for second in range(1, 20):
        worker.desk.lose("gone", float(second))
    assert (spent.wait_s(60, 20.0), spent.wait_s(61, 20.0) > 0.0) == (0.0, True)


def test_as_many_share_as_are_known() -> None:
    """A worker that never reached the book counts its siblings, and the gateways that shared before it began."""
    for members, workers, among in ((1, 1, 1), (1, 4, 4), (6, 2, 6)):
        desk = LeaseDesk("m", is_open=True, member_s=5.0, wake=lambda: None, members=members, least_members=workers)
        desk.lose("gone", 0.0)
        rate = desk.meter(limit(RATE), 24, 0.0)
        assert desk.alone_among == among
        rate.take(24 // among, 0.0)
        assert rate.wait_s(1, 0.0) > 0.0


def test_a_book_that_blinks_gives_no_second_part() -> None:
    """Lost and found again and again: what was taken meanwhile is told, and the part of each loss is given back."""
    worker = Worker(member_s=1000.0)
    spent, other = (
        worker.desk.meter(limit(DAY), 100, 0.0),
        LeaseDesk("o", is_open=True, member_s=9.0, wake=lambda: None),
    )
    worker.book.exchange(other.make_exchange(0.0), 0.0, NOON_AT)
    spent.wait_s(1, 0.0)
    worker.exchange(0.0)
    for second in range(1, 9):
        worker.desk.lose("gone", float(second))
        worker.exchange(second + 0.2)
        assert spent.wait_s(3, second + 0.3) > 0.0, "nothing is left of our part until the book has granted anew"
        worker.exchange(second + 0.4)
    while spent.wait_s(1, 10.0) == 0.0:
        spent.take(1, 10.0)
        worker.exchange(10.0)
    assert 98 <= worker.book.find_pot(TEXTS[2]).used <= 100  # type: ignore[union-attr]


def test_without_a_book_a_closed_member_uses_what_it_has() -> None:
    """Fail closed: leased shares may be used, nothing beyond; once the book has given up on us, not even those."""
    worker = Worker(is_open=False)
    rate = worker.desk.meter(limit(RATE), 10, 0.0)
    rate.wait_s(2, 0.0)
    worker.exchange(0.0)
    worker.desk.lose("gone", 1.0)
    assert (rate.wait_s(2, 1.0), rate.wait_s(10, 1.0) > 0.0) == (0.0, True)
    assert worker.desk.find_outage() == "gone"
    assert not worker.desk.await_share(rate, 1.0, lambda: None)
    worker.desk.lose("still gone", 5.0)
    assert rate.wait_s(1, 5.0) > 0.0


def test_a_limit_that_is_no_longer_declared_is_given_back() -> None:
    """After a reload without a limit nothing of it stays leased, and its meter is forgotten."""
    worker = Worker()
    meter = worker.desk.meter(limit(RATE), 100, 0.0)
    meter.wait_s(5, 0.0)
    worker.exchange(0.0)
    worker.desk.keep_only(frozenset())
    worker.exchange(0.1)
    assert worker.book.find_pot(TEXTS[0]).held == 0  # type: ignore[union-attr]
    assert worker.desk.meter(limit(RATE), 100, 0.2) is not meter


def test_a_leaving_worker_gives_everything_back() -> None:
    """A gateway that is stopped in peace leaves its whole share to the others."""
    worker = Worker()
    meter = worker.desk.meter(limit(RATE), 100, 0.0)
    meter.wait_s(5, 0.0)
    worker.exchange(0.0)
    assert worker.desk.leave()
    worker.exchange(0.1)
    assert not worker.desk.leave()
    assert worker.book.find_pot(TEXTS[0]).held == 0  # type: ignore[union-attr]


def test_what_others_held_is_not_shown_for_ever() -> None:
    """An idle gateway learns within seconds that the others have nothing in work any more."""
    worker = Worker(member_s=60.0)
    other = LeaseDesk("other", is_open=True, member_s=60.0, wake=lambda: None)
    theirs, ours = other.meter(limit(SLOTS), 4, 0.0), worker.desk.meter(limit(SLOTS), 4, 0.0)
    theirs.wait_s(2, 0.0)
    other.adopt(worker.book.exchange(other.make_exchange(0.0), 0.0, NOON_AT), 0.0)
    ours.wait_s(1, 0.1)
    worker.exchange(0.1)
    assert ours.used(0.1) > 0
    for second in range(1, 30):
        other.adopt(worker.book.exchange(other.make_exchange(float(second)), float(second), NOON_AT), float(second))
        worker.exchange(float(second))
    assert ours.used(30.0) == 0


def test_a_request_waits_for_what_others_hold_unused() -> None:
    """While another gateway may still give back what is needed, a request is not refused; no exchange is forced."""
    worker = Worker(member_s=60.0)
    other = LeaseDesk("other", is_open=True, member_s=60.0, wake=lambda: None)
    theirs, ours = other.meter(limit(DAY), 10, 0.0), worker.desk.meter(limit(DAY), 10, 0.0)
    theirs.wait_s(8, 0.0)
    other.adopt(worker.book.exchange(other.make_exchange(0.0), 0.0, NOON_AT), 0.0)
    theirs.take(2, 0.0)
    ours.wait_s(5, 0.1)
    worker.exchange(0.1)
    woken = worker.woken
    assert 0.0 < ours.wait_s(5, 0.1) < 0.1
    assert worker.desk.await_share(ours, 0.1, lambda: None)
    assert worker.woken == woken
    for at_s in (0.2, 0.201):
        other.adopt(worker.book.exchange(other.make_exchange(at_s), at_s, NOON_AT), at_s)
    worker.exchange(0.21)
    assert ours.wait_s(5, 0.21) == 0.0


def test_a_request_does_not_wait_for_ever_for_others() -> None:
    """A gateway that holds a share and does not answer keeps nobody waiting, and nobody out for a whole day."""
    worker = Worker(member_s=60.0)
    other = LeaseDesk("other", is_open=True, member_s=60.0, wake=lambda: None)
    theirs, ours = other.meter(limit(DAY), 10, 0.0), worker.desk.meter(limit(DAY), 10, 0.0)
    theirs.wait_s(8, 0.0)
    other.adopt(worker.book.exchange(other.make_exchange(0.0), 0.0, NOON_AT), 0.0)
    for fiftieth in range(int(PATIENCE_S * 50) + 2):
        ours.wait_s(5, fiftieth / 50)
        worker.exchange(fiftieth / 50)
    now_s = PATIENCE_S + 0.03
    assert ours.wait_s(5, now_s) == CONTESTED_S
    assert not worker.desk.await_share(ours, now_s, lambda: None)
