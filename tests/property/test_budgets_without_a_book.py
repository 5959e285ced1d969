"""No run of restarts, kills, upgrades and losses of the shared book spends a budget twice. Virtual time, pure parts."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.leased_meter import LeasedMeter
from headrace.gateway.admission.core.purse import DAY, Purse, Reservation, no_amounts
from headrace.tenancy.leases.core.book import LeaseBook

MIDNIGHT_AT = 1_790_208_000.0
NOON_AT = MIDNIGHT_AT + 43_200.0
BUDGET = LimitId(Level.TENANT, "t", Unit.BUDGET_PER_DAY)
AMOUNT = 1000
MEMBER_S = 5.0


@dataclass(eq=False)
class Worker:
    """One gateway process."""

    name: str
    desk: LeaseDesk
    purse: Purse
    open: list[Reservation] = field(default_factory=list)


class Instance:
    """Workers, the ledger that hears of all they settle, and a book that comes and goes."""

    def __init__(self, workers: int, *, has_book: bool) -> None:
        self.now_s = 100.0
        self.begun = self.books = 0
        self.spent = self.in_ledger = 0
        self.book: LeaseBook | None = None
        self.workers = [self._start(workers) for _ in range(workers)]
        if has_book:
            self.return_book()
        else:
            self.exchange()

    def _start(self, workers: int) -> Worker:
        self.begun += 1
        desk_name = f"m{self.begun}"
        desk = LeaseDesk(desk_name, is_open=True, member_s=MEMBER_S, wake=_wake, least_members=workers)
        desk.raise_spent(BUDGET, self.in_ledger, MIDNIGHT_AT)
        return Worker(desk_name, desk, Purse([desk.meter(BUDGET, AMOUNT, self.now_s)], None))

    def exchange(self) -> None:
        """All have told the book, and heard from it; the second round shares out what the first gave back."""
        for _ in range(2):
            for worker in self.workers:
                self.now_s += 0.05
                message = worker.desk.make_exchange(self.now_s)
                if self.book is None:
                    worker.desk.lose("gone", self.now_s)
                else:
                    worker.desk.adopt(self.book.exchange(message, self.now_s, NOON_AT + self.now_s), self.now_s)

    def lose_book(self) -> None:
        """After all have heard its last word: how old that may be is not what is tested here."""
        self.tell()
        self.ask_all()
        self.exchange()
        self.ask_all()
        self.exchange()
        self.book = None
        self.exchange()

    def ask_all(self) -> None:
        """Have everybody report on the budget in the next exchange."""
        for worker in self.workers:
            for _, meter in worker.purse.meters:
                assert isinstance(meter, LeasedMeter)
                worker.desk.list_meter(meter)

    def blink(self) -> None:
        """The same book is out of reach for a moment."""
        self.ask_all()
        self.exchange()
        book, self.book = self.book, None
        self.exchange()
        self.book = book
        self.exchange()

    def return_book(self) -> None:
        """Another one, which knows nothing."""
        self.tell()
        self.books += 1
        self.book = LeaseBook(f"g{self.books}", member_s=MEMBER_S)
        for _ in range(3):
            self.exchange()
            self.now_s += 1.0
        self.exchange()

    def tell(self, *, late_by: int = 0) -> None:
        """All hear what the ledger knows."""
        self.in_ledger = max(self.in_ledger, self.spent - late_by)
        for worker in self.workers:
            worker.desk.raise_spent(BUDGET, self.in_ledger, MIDNIGHT_AT)

    def replace(self, index: int, *, late_by: int = 0) -> None:
        """A worker is killed; its successor, and the others, hear what was spent."""
        old = self.workers[index]
        if self.book is not None:
            self.book.leave(old.name)
        old.open.clear()
        self.tell(late_by=late_by)
        self.workers[index] = self._start(len(self.workers))
        self.exchange()

    def ask(self, index: int, cost: int) -> bool:
        amounts = no_amounts()
        amounts[DAY] = cost
        worker = self.workers[index]
        reserved = worker.purse.try_reserve(amounts, self.now_s)
        if not isinstance(reserved, Reservation) and self.book is not None:
            self.exchange()
            reserved = worker.purse.try_reserve(amounts, self.now_s)
        if isinstance(reserved, Reservation):
            worker.open.append(reserved)
            return True
        return False

    def end(self, index: int, ratio: float) -> None:
        """A request ends, having cost a part of what it had reserved."""
        if self.workers[index].open:
            reservation = self.workers[index].open.pop(0)
            used = no_amounts()
            used[DAY] = int(reservation.held[DAY] * ratio)
            reservation.settle(used, self.now_s)
            self.spent += used[DAY]

    def exhaust(self, index: int) -> None:
        """One caller after the other, until this worker refuses."""
        while self.ask(index, 10):
            while self.workers[index].open:
                self.end(index, 1.0)


def _wake() -> None:
    """Exchanges are made when the test says so."""


Step = tuple[str, int, float]
STEPS = st.one_of(
    st.tuples(st.sampled_from(["ask", "ask", "end"]), st.integers(0, 3), st.floats(0.0, 1.0)),
    st.tuples(st.sampled_from(["replace", "exhaust"]), st.integers(0, 3), st.just(0.0)),
    st.tuples(st.sampled_from(["tell", "wait", "blink", "lose", "return", "upgrade"]), st.just(0), st.just(0.0)),
)


def play(instance: Instance, steps: list[Step]) -> None:
    for kind, index, ratio in steps:
        at = index % len(instance.workers)
        if kind == "ask":
            instance.ask(at, 1 + int(ratio * 400))
        elif kind == "end":
            instance.end(at, ratio)
        elif kind == "exhaust":
            instance.exhaust(at)
        elif kind == "replace":
            instance.replace(at)
        elif kind == "upgrade":
            for each in range(len(instance.workers)):
                instance.replace(each)
        elif kind == "tell":
            instance.tell()
        elif kind == "wait":
            instance.now_s += 6.0
            instance.exchange()
        elif kind == "blink" and instance.book is not None:
            instance.blink()
        elif kind == "lose" and instance.book is not None:
            instance.lose_book()
        elif kind == "return" and instance.book is None:
            instance.return_book()
        assert instance.spent <= AMOUNT
    for index in range(len(instance.workers)):
        instance.exhaust(index)
    assert instance.spent <= AMOUNT


@settings(max_examples=150, deadline=None)
@given(workers=st.integers(1, 4), steps=st.lists(STEPS, max_size=60))
def test_workers_that_never_reach_the_book_spend_a_budget_once(workers: int, steps: list[Step]) -> None:
    """Killed, upgraded and restarted at will, they spend together no more than the budget: no request here costs more
    than it reserved, and the ledger has caught up when a worker is replaced.
    """
    play(Instance(workers, has_book=False), [step for step in steps if step[0] not in ("lose", "return")])


@settings(max_examples=150, deadline=None)
@given(workers=st.integers(1, 4), steps=st.lists(STEPS, max_size=60))
def test_a_book_that_comes_and_goes_lends_a_budget_once(workers: int, steps: list[Step]) -> None:
    """Whatever is lost, in whatever order, and however often: no more than the budget is spent."""
    play(Instance(workers, has_book=True), steps)


@settings(max_examples=60, deadline=None)
@given(workers=st.integers(1, 4), rounds=st.integers(1, 6), lag=st.integers(0, 200), cost=st.integers(1, 100))
def test_a_late_ledger_costs_no_more_than_it_is_late_by(workers: int, rounds: int, lag: int, cost: int) -> None:
    """Workers without a book are replaced while the ledger lags: what it did not know then can be spent again, once."""
    instance = Instance(workers, has_book=False)
    for _ in range(rounds):
        for index in range(workers):
            while instance.ask(index, cost):
                instance.end(index, 1.0)
        instance.tell(late_by=lag)
        for index in range(workers):
            instance.replace(index, late_by=lag)
    assert instance.spent <= AMOUNT + lag


@settings(max_examples=60, deadline=None)
@given(workers=st.integers(1, 4), spent=st.lists(st.integers(1, 120), min_size=1, max_size=12))
def test_what_was_spent_without_a_book_counts_once_when_it_is_back(workers: int, spent: list[int]) -> None:
    """The ledger and the workers both know of it: the book is not told twice, but for what the ledger heard last."""
    instance = Instance(workers, has_book=True)
    instance.lose_book()
    for index, cost in enumerate(spent):
        if instance.ask(index % workers, cost):
            instance.end(index % workers, 1.0)
    for _ in range(2):
        instance.tell()
    instance.return_book()
    assert instance.book is not None
    pot = instance.book.find_pot("tenant:budget_per_day:t")
    assert pot is None or pot.used == instance.spent
