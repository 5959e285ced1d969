"""What always holds of quotas: conservation, no use beyond a limit but an overrun, and limits that can be used up."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.local_meters import LocalMeters, WallOffset
from headrace.gateway.admission.core.purse import INDEX, OUTPUT, SLOT_INDEXES, Purse, Reservation, no_amounts

UNITS = (Unit.REQUESTS_PER_MIN, Unit.OUTPUT_TOKENS_PER_MIN, Unit.CONCURRENT_REQUESTS, Unit.BUDGET_PER_DAY)
START_S = 1000.0
LEVELS = (Level.TENANT, Level.KEY)


@dataclass
class Book:
    """What truly happened of one unit under one meter: uses with the time of their request's start."""

    used: list[tuple[float, int]] = field(default_factory=list)
    overrun: int = 0
    settled: int = 0

    def within(self, start_s: float, end_s: float) -> int:
        return sum(amount for at, amount in self.used if start_s <= at < end_s)


step = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 40)),
    st.tuples(st.just("end"), st.integers(0, 30), st.integers(0, 60)),
    st.tuples(st.just("refund"), st.integers(0, 30)),
    st.tuples(st.just("grow"), st.integers(0, 30), st.integers(0, 60)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 0.7, 5.0, 29.0, 61.0, 50_000.0])),
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(step, max_size=60), limits=st.lists(st.integers(0, 100), min_size=8, max_size=8))
def test_reserved_is_settled_or_given_back(steps: list[tuple], limits: list[int]) -> None:
    """For any order of requests, ends, growth and time: nothing is lost or made up, nothing below zero, and no window
    holds more than its limit and the overruns of answers that grew beyond what was reserved.
    """
    factory = LocalMeters(WallOffset(0.0, 0.0))
    ids = [LimitId(level, "x", unit) for level in LEVELS for unit in UNITS]
    now_s = START_S
    purse = Purse([factory.meter(one, amount, now_s) for one, amount in zip(ids, limits, strict=True)], None)
    held: list[Reservation] = []
    books = {unit: Book() for unit in UNITS}
    for kind, *values in steps:
        if kind == "wait":
            now_s += values[0]
        elif kind == "ask":
            wanted = _wanted(values[0])
            reserved = purse.try_reserve(wanted, now_s)
            if isinstance(reserved, Reservation):
                held.append(reserved)
            else:
                assert reserved.wait_s > 0.0
        elif held and kind == "grow":
            held[values[0] % len(held)].grow(_wanted(values[1]), now_s)
        elif held:
            reservation = held.pop(values[0] % len(held))
            output = values[1] if kind == "end" else 0
            _settle(reservation, output, is_charged=kind == "end", books=books, now_s=now_s)
        for _, meter in purse.meters:
            assert meter.used(now_s) >= 0
    for reservation in held:
        _settle(reservation, 0, is_charged=False, books=books, now_s=now_s)
    for index, meter in purse.meters:
        unit, used = meter.limit_id.unit, meter.used(now_s)
        if index in SLOT_INDEXES:
            assert used == 0
        elif unit is Unit.BUDGET_PER_DAY:
            assert used <= meter.amount + books[unit].overrun
        else:
            if now_s - START_S < 60.0:  # nothing has left the window: what counts is what was settled, to the token
                assert used == books[unit].settled
            assert used <= books[unit].within(now_s - 61.0, now_s + 1.0) + books[unit].overrun
            for at, _ in books[unit].used:
                assert books[unit].within(at, at + 60.0) <= meter.amount + books[unit].overrun


def _wanted(output: int) -> list[int]:
    amounts = no_amounts()
    for unit, amount in zip(UNITS, (1, output, 1, 2 * output), strict=True):
        amounts[INDEX[unit]] = amount
    return amounts


def _settle(reservation: Reservation, output: int, *, is_charged: bool, books: dict[Unit, Book], now_s: float) -> None:
    used = _wanted(output) if is_charged else no_amounts()
    used[INDEX[Unit.CONCURRENT_REQUESTS]] = 0
    reserved = reservation.held
    for unit in UNITS:
        book, amount = books[unit], used[INDEX[unit]]
        book.settled += amount
        book.used.append((reservation.taken_mono_s, min(amount, reserved[INDEX[unit]])))
        # What grew, or is settled beyond, counts from its own time on: an overrun of this one request.
        book.overrun += max(amount, reserved[INDEX[OUTPUT_UNIT]] if unit is not Unit.REQUESTS_PER_MIN else 0)
    reservation.settle(used, now_s)


OUTPUT_UNIT = Unit.OUTPUT_TOKENS_PER_MIN


@settings(max_examples=25, deadline=None)
@given(
    limit=st.integers(2000, 20_000),
    seconds=st.floats(0.05, 12.0),
    spare=st.integers(0, 60),
    callers=st.integers(50, 200),
)
def test_no_minute_exceeds_a_limit_and_nearly_all_of_it_is_used(
    limit: int, seconds: float, spare: int, callers: int
) -> None:
    """Virtual time, callers who ask whenever they may: any 60 seconds hold at most the limit. At least 95 percent of it
    is used, but for what requests in work have reserved and will not use.
    """
    meter = LocalMeters(WallOffset(0.0, 0.0)).meter(LimitId(Level.TENANT, "t", Unit.OUTPUT_TOKENS_PER_MIN), limit, 0.0)
    purse = Purse([meter], None)
    used, reserve = 20, 20 + spare
    running: list[tuple[float, Reservation]] = []
    starts: list[float] = []
    now_s, end_s = 0.0, 242.0
    while now_s < end_s:
        while running and running[0][0] <= now_s:
            _, reservation = running.pop(0)
            reservation.settle(_output(used), now_s)
        while len(running) < callers:
            reserved = purse.try_reserve(_output(reserve), now_s)
            if not isinstance(reserved, Reservation):
                break
            running.append((now_s + seconds, reserved))
            starts.append(now_s)
        now_s += 0.25
    counts = [sum(used for start in starts if begin <= start < begin + 60.0) for begin in sorted(set(starts))]
    assert max(counts) <= limit
    if callers * used * 60.0 / (seconds + 0.25) > 1.5 * limit:  # the callers are able to use it up
        unused_share = (seconds + 0.25) / 60.5 * spare / used
        usable = limit / (1.0 + unused_share)
        late = [start for start in starts if start >= end_s / 2]
        assert len(late) * used >= 0.95 * usable * end_s / 2 / 60.5 - reserve


def _output(tokens: int) -> list[int]:
    amounts = no_amounts()
    amounts[OUTPUT] = tokens
    return amounts
