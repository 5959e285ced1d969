"""What always holds of shared limits: rehearsed in virtual time, and the script in Redis compared with the book."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis
from tests.fixtures.redis_server import RedisServer
from tests.harness.shared_limits import EPOCH_AT, SharedLimits, limit

from headrace.domain.quota import Unit
from headrace.tenancy.leases.core.book import LeaseBook
from headrace.tenancy.leases.core.fair_share import fair_shares
from headrace.tenancy.leases.exchange import Exchange, ExchangeReply, LeaseKind, LeaseReport, Use
from headrace.tenancy.leases.redis_store import SCRIPT

SLOTS, RATE = Unit.CONCURRENT_REQUESTS, Unit.OUTPUT_TOKENS_PER_MIN


@pytest.mark.parametrize(("members", "amount"), [(2, 1), (2, 3), (3, 16), (4, 64)])
def test_slots_are_never_exceeded_and_always_used(members: int, amount: int) -> None:
    """Under more demand than there is, the limit is never exceeded, and 95 % of it are in use."""
    world, slots = SharedLimits(members), limit(SLOTS)
    for member in world.members:
        world.saturate(member, slots, amount, callers=40, hold_s=0.4, uses=lambda: 1)
    world.run(2.0)
    used = world.used[slots]
    used.hold(0, world.now_s)
    used.busy_s = 0.0
    world.run(20.0)
    used.hold(0, world.now_s)
    assert used.most_in_use == amount
    assert used.busy_s >= 0.95 * 20.0 * amount


@pytest.mark.parametrize(("members", "amount", "size"), [(2, 10, 1), (3, 6000, 100), (2, 5000, 1500)])
def test_rates_are_never_exceeded_and_always_used(members: int, amount: int, size: int) -> None:
    """No 60 seconds hold more than the limit, wherever they begin, and 95 % of it are used in every one."""
    world, rate = SharedLimits(members), limit(RATE)
    for member in world.members:
        world.saturate(member, rate, amount, callers=10, hold_s=0.05, uses=lambda: world.random.randint(1, 2 * size))
    world.run(60.0)
    first = world.used[rate].total
    world.run(61.0)
    assert world.used[rate].most_in_window <= amount
    assert first >= 0.95 * amount - 2 * size
    assert world.used[rate].total - first >= 0.95 * amount - 2 * size


def test_shares_move_to_where_the_demand_is() -> None:
    """When one gateway's callers fall silent, another has the whole limit in less than half a second."""
    world, slots = SharedLimits(2), limit(SLOTS)
    one, other = world.members
    world.saturate(one, slots, 20, callers=50, hold_s=0.05, uses=lambda: 1)
    world.run(3.0)
    one.is_silent = True
    world.saturate(other, slots, 20, callers=50, hold_s=0.05, uses=lambda: 1)
    world.run(0.5)
    assert other.desk.meter(slots, 20, world.now_s).used(world.now_s) >= 19


@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize(
    ("unit", "amount", "size", "spends", "served"),
    [
        (Unit.REQUESTS_PER_MIN, 3, 1, 1, 3),
        (RATE, 10, 3, 1, 8),
        (Unit.BUDGET_PER_DAY, 10_000_000, 3_000_000, 2_000_000, 4),
        (Unit.BUDGET_PER_MONTH, 10_000_000, 3_000_000, 1_000_000, 8),
        (SLOTS, 1, 1, 0, 20),
    ],
)
@pytest.mark.parametrize("pause_s", [0.0, 0.004, 0.05, 0.3])
def test_one_caller_at_a_time_has_the_whole_of_a_small_limit(
    members: int, unit: Unit, amount: int, size: int, spends: int, served: int, pause_s: float
) -> None:
    """Requests one after the other, each at another process, are refused only once the limit is used up."""
    world, small = SharedLimits(members), limit(unit)
    world.run(0.5)
    outcomes: list[bool] = []
    for turn in range(served):
        outcomes.append(world.ask_once(world.members[turn * 7 % members], small, amount, size, spends))
        world.run(pause_s)
    assert outcomes == [True] * served
    if unit is not SLOTS:
        assert not world.ask_once(world.members[0], small, amount, size, spends)


def test_slots_of_a_killed_member_are_free_again() -> None:
    """A gateway that dies with requests in work takes no part of the limit with it."""
    world, slots = SharedLimits(2), limit(SLOTS)
    one, other = world.members
    world.saturate(one, slots, 8, callers=20, hold_s=500.0, uses=lambda: 1)
    world.run(1.0)
    assert world.used[slots].in_use == 8
    world.kill(one)
    world.used[slots].hold(-8, world.now_s)
    world.saturate(other, slots, 8, callers=20, hold_s=500.0, uses=lambda: 1)
    world.run(1.0)
    assert world.used[slots].in_use == 8


def test_a_new_book_begins_with_what_members_hold() -> None:
    """The coordinator restarts: not one request more than the limit, and nothing is forgotten of the last minute."""
    world, slots, rate = SharedLimits(3, is_open=False), limit(SLOTS), limit(RATE)
    for member in world.members:
        world.saturate(member, slots, 9, callers=20, hold_s=0.3, uses=lambda: 1)
        world.saturate(member, rate, 3000, callers=20, hold_s=0.05, uses=lambda: 40)
    world.run(5.0)
    for generation in ("g2", "g3"):
        world.book = None
        world.run(0.7)
        world.book = LeaseBook(generation, member_s=5.0)
        world.run(10.0)
    assert world.used[slots].most_in_use == 9
    assert world.used[rate].most_in_window <= 3000
    assert world.used[slots].in_use == 9


@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_are_counted_once(seed: int) -> None:
    """However many exchanges get lost on their way there or back, no limit is exceeded and no use counted twice."""
    world, slots, rate = SharedLimits(3, seed=seed, is_open=False), limit(SLOTS), limit(RATE)
    world.loss_ratio = 0.25
    for member in world.members:
        world.saturate(member, slots, 7, callers=15, hold_s=0.3, uses=lambda: 1)
        world.saturate(member, rate, 2000, callers=15, hold_s=0.05, uses=lambda: world.random.randint(1, 60))
    world.run(20.0)
    assert world.used[slots].most_in_use <= 7
    assert world.used[rate].most_in_window <= 2000
    world.loss_ratio = 0.0
    for member in world.members:
        member.is_silent = True
    world.run(8.0)
    assert world.book is not None
    pot = world.book.find_pot(f"tenant:{RATE.value}:t")
    assert pot is not None
    assert pot.used == world.used[rate].total
    assert pot.held == 0


def test_without_a_book_each_serves_by_its_part() -> None:
    """Fail open: a lost store stops nobody, and about one limit's worth is served; afterwards nothing counts twice."""
    world, slots, rate = SharedLimits(2), limit(SLOTS), limit(RATE)
    one, other = world.members
    world.saturate(one, rate, 1000, callers=8, hold_s=0.05, uses=lambda: 10)
    world.saturate(one, slots, 4, callers=20, hold_s=0.3, uses=lambda: 1)
    world.run(2.0)
    kept, world.book = world.book, None
    world.saturate(other, slots, 4, callers=20, hold_s=0.3, uses=lambda: 1)
    world.saturate(other, rate, 1000, callers=8, hold_s=0.05, uses=lambda: 10)
    world.run(70.0)
    assert other.desk.trouble
    assert world.used[slots].most_in_use <= 4 + 2
    assert world.used[rate].most_in_window <= 1000 + 500
    before = world.used[rate].total
    world.book = kept
    world.run(61.0)
    assert not other.desk.trouble
    assert world.used[rate].total - before >= 0.95 * 1000
    pot = kept.find_pot(one.desk.meter(rate, 1000, world.now_s).text) if kept else None  # type: ignore[attr-defined]
    assert pot is not None
    assert pot.used + pot.held <= 1000


@given(st.integers(0, 50), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 30), min_size=1), st.floats(0, 99))
def test_fair_shares_are_fair(amount: int, demands: dict[str, int], now_s: float) -> None:
    """Nobody gets more than asked, all is given out that is wanted, and two who want more differ by one at most."""
    shares = fair_shares(amount, demands, now_s)
    assert sum(shares.values()) == min(amount, sum(demands.values()))
    assert all(0 <= shares[name] <= demand for name, demand in demands.items())
    short = [shares[name] for name, demand in demands.items() if shares[name] < demand]
    assert not short or all(share <= min(short) + 1 for share in shares.values())


# --- the script in Redis decides as the book does

MEMBER_S = 5.0
REPORTS = st.builds(
    LeaseReport,
    limit=st.sampled_from(["a", "b"]),
    kind=st.just(LeaseKind.RATE),
    amount=st.sampled_from([40, 60]),
    held=st.integers(0, 30),
    need=st.integers(0, 40),
    least=st.integers(0, 10),
    want=st.integers(0, 50),
    uses=st.lists(st.builds(Use, st.integers(0, 130), st.integers(-5, 20)), max_size=3).map(tuple),
    floor=st.integers(0, 30),
    seen=st.integers(0, 30),
    period=st.sampled_from([0, 20787, 20758]),
    open=st.integers(0, 20),
    was_open=st.integers(0, 20),
)
STEPS = st.tuples(
    st.sampled_from(["m1", "m2", "m3"]),
    st.sampled_from([0.0, 0.1, 0.7, 3.0, 40.0, 86400.0]),
    st.sampled_from(["", "g1", "before"]),
    st.lists(REPORTS, max_size=2, unique_by=lambda report: report.limit),
)


@settings(max_examples=40, deadline=None)
@given(kinds=st.sampled_from(list(LeaseKind)), steps=st.lists(STEPS, min_size=1, max_size=12))
def test_the_script_decides_as_the_book(
    redis_server: RedisServer,
    kinds: LeaseKind,
    steps: list[tuple[str, float, str, list[LeaseReport]]],
) -> None:
    """Whether gateways share through the coordinator or through Redis, they get the same answers."""
    book, now_s = LeaseBook("g1", member_s=MEMBER_S), EPOCH_AT
    timed = SCRIPT.replace(b"redis.call('TIME')", b"{ARGV[4], ARGV[5]}")
    assert timed != SCRIPT
    with Redis(port=redis_server.port) as redis:
        redis.flushall()
        for serial, (member, pause_s, generation, reports) in enumerate(steps):
            now_s += pause_s
            told = tuple(msgspec.structs.replace(report, kind=kinds) for report in reports)
            message = Exchange(member, serial, generation, 0, told)
            packed = redis.eval(
                timed, 1, "{t}:book", msgspec.msgpack.encode(message), MEMBER_S, "g1", int(now_s),
                round(now_s % 1 * 1e6),
            )  # fmt: skip
            there = msgspec.msgpack.decode(packed, type=ExchangeReply)
            here = book.exchange(message, int(now_s) + round(now_s % 1 * 1e6) / 1e6, now_s)
            assert _rounded(there) == _rounded(here)


def _rounded(reply: ExchangeReply) -> ExchangeReply:
    """Times to the millisecond: Redis counts microseconds."""
    return msgspec.structs.replace(
        reply,
        recalls=tuple(sorted(reply.recalls)),
        answers=tuple(
            msgspec.structs.replace(one, wait_s=round(one.wait_s, 3), resets_in_s=round(one.resets_in_s, 3))
            for one in reply.answers
        ),
    )
