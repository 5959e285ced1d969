"""One suite for every keeper of the shared book: in memory, behind the coordinator's socket, in Redis and Valkey."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest
import pytest_asyncio
import structlog
from tests.fixtures.redis_server import RedisServer

from headrace.domain.clock import SystemClock
from headrace.fleet.deploy.coordinator import Coordinator
from headrace.tenancy.leases.core.book import ExchangeRefusedError, LeaseBook
from headrace.tenancy.leases.exchange import (
    Exchange,
    ExchangeReply,
    LeaseAnswer,
    LeaseKind,
    LeaseReport,
    LeaseStore,
    StoreLostError,
    Use,
)
from headrace.tenancy.leases.redis_store import RedisStore
from headrace.tenancy.leases.unix_store import UnixStore

TIMEOUT_S = 30.0
MEMBER_S = 30.0
"""Only a test that says so lets a member die."""


class InMemory:
    """The book itself, as a store."""

    def __init__(self, book: LeaseBook) -> None:
        self._book = book

    async def exchange(self, message: Exchange) -> ExchangeReply:
        try:
            return self._book.exchange(message, monotonic(), SystemClock().wall_s())
        except ExchangeRefusedError as error:
            raise StoreLostError(str(error)) from error

    async def close(self) -> None:
        pass


class Stores:
    """Makes stores of one book."""

    def __init__(self, kind: str, folder: Path, redis: RedisServer | None) -> None:
        self._folder = folder
        self._redis = redis
        self._namespace = secrets.token_hex(4)
        self._book = LeaseBook("g1", member_s=MEMBER_S)
        self._opened: list[LeaseStore] = []
        self._coordinator: Coordinator | None = None
        self.kind = kind

    def store(self) -> LeaseStore:
        if self.kind == "memory":
            return InMemory(self._book)
        if self._redis is None:
            store: LeaseStore = UnixStore(self._socket, timeout_s=TIMEOUT_S)
        else:
            store = RedisStore(self._redis.url, namespace=self._namespace, member_s=MEMBER_S, timeout_s=TIMEOUT_S)
        self._opened.append(store)
        return store

    @property
    def _socket(self) -> Path:
        return self._folder / "leases.sock"

    async def open(self) -> None:
        if self.kind == "coordinator":
            self._coordinator = Coordinator(self._socket, SystemClock(), structlog.get_logger())
            await self._coordinator.open()

    async def forget(self) -> None:
        """The book loses all it knows."""
        if self.kind == "memory":
            self._book = LeaseBook("g2", member_s=MEMBER_S)
        elif self._coordinator is not None:
            await self._coordinator.close()
            await self.open()
        else:
            self._namespace = secrets.token_hex(4)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        if self._coordinator is not None:
            await self._coordinator.close()


@pytest_asyncio.fixture(params=["memory", "coordinator", "redis", "valkey"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    redis = request.getfixturevalue(f"{request.param}_server") if request.param in ("redis", "valkey") else None
    made = Stores(request.param, tmp_path, redis)
    await made.open()
    yield made
    await made.close()


class Member:
    """One member as a test plays it."""

    def __init__(self, stores: Stores, name: str) -> None:
        self._stores = stores
        self._store = stores.store()
        self._name = name
        self.serial = 0
        self.generation = ""

    async def say(self, *reports: LeaseReport, serial: int | None = None) -> ExchangeReply:
        self.serial = self.serial + 1 if serial is None else serial
        store = self._stores.store() if self._stores.kind == "memory" else self._store
        reply = await store.exchange(Exchange(self._name, self.serial, self.generation, 0, reports))
        self.generation = reply.generation
        return reply

    async def ask(self, need: int, *, held: int = 0, want: int = 0, **more: object) -> LeaseAnswer:
        """Report on one limit; the book's answer."""
        fields: dict[str, object] = {"kind": LeaseKind.RATE, "amount": 100, "least": need, **more}
        reply = await self.say(LeaseReport(limit="l", held=held, need=need, want=max(want, need), **fields))  # type: ignore[arg-type]
        return reply.answers[0]

    def reconnect(self) -> None:
        self._store = self._stores.store()


SLOTS = {"kind": LeaseKind.SLOTS, "amount": 4}


async def test_grants_are_never_more_than_the_limit(stores: Stores) -> None:
    """Two gateways that each want the whole limit get it once."""
    one, other = Member(stores, "one"), Member(stores, "other")
    assert (await one.ask(70)).grant == 70
    granted = (await other.ask(70, least=1)).grant
    assert granted == 30
    assert (await other.ask(70, held=30)).grant == 0


async def test_what_is_used_up_counts_for_everybody(stores: Stores) -> None:
    """Tokens that one gateway has used are gone for the others."""
    one, other = Member(stores, "one"), Member(stores, "other")
    await one.ask(60)
    await one.ask(0, held=0, uses=(Use(0, 60),))
    answer = await other.ask(60)
    assert (answer.grant, answer.used, answer.free) == (0, 60, 40)
    assert 0 < answer.wait_s <= 60.5


async def test_what_is_given_back_can_be_had_by_others(stores: Stores) -> None:
    """An unused share moves to where it is needed with the next exchange."""
    one, other = Member(stores, "one"), Member(stores, "other")
    await one.ask(100)
    assert (await other.ask(50)).grant == 0
    recalled = await one.say()
    assert recalled.recalls == ("l",)
    assert (await one.ask(0, held=100)).keep == 0
    await one.ask(0, held=0)
    assert (await other.ask(50)).grant == 50


async def test_a_use_taken_back_is_taken_out_of_its_own_time(stores: Stores) -> None:
    """Tokens that were reserved and not needed are free again at once."""
    one = Member(stores, "one")
    await one.ask(100)
    await one.ask(0, uses=(Use(0, 100),))
    await one.say()
    answer = await one.ask(0, uses=(Use(0, -80),), held=80)
    assert (answer.used, answer.free) == (20, 0)
    assert (await one.ask(0)).free == 80


async def test_a_repeated_exchange_is_counted_once(stores: Stores) -> None:
    """A gateway that never got the answer asks again, also over another connection, and nothing is charged twice."""
    one = Member(stores, "one")
    await one.ask(100)
    report = LeaseReport(limit="l", kind=LeaseKind.RATE, amount=100, held=0, need=0, least=0, want=0, uses=(Use(0, 7),))
    first = await one.say(report)
    one.reconnect()
    assert await one.say(report, serial=one.serial) == first
    assert (await one.ask(0)).used == 7


async def test_an_overtaken_exchange_is_refused(stores: Stores) -> None:
    """A message that arrives after a later one changes nothing."""
    one = Member(stores, "one")
    await one.ask(10)
    await one.ask(10, held=10)
    with pytest.raises(StoreLostError, match=r"overtaken|IncompleteRead"):
        await one.say(serial=1)


async def test_slots_are_shared_fairly(stores: Stores) -> None:
    """A gateway that holds everything keeps its fair part once another needs some too."""
    one, other = Member(stores, "one"), Member(stores, "other")
    assert (await one.ask(4, **SLOTS)).grant == 4
    assert (await other.ask(4, **SLOTS)).grant == 0
    assert (await one.ask(8, held=4, **SLOTS)).keep == 2
    await one.ask(8, held=2, **SLOTS)
    assert (await other.ask(4, **SLOTS)).grant == 2


async def test_the_last_to_change_a_limit_is_right(stores: Stores) -> None:
    """A reload at one gateway holds at once, although another has not reloaded yet."""
    one, other = Member(stores, "one"), Member(stores, "other")
    await one.ask(10)
    await other.ask(10)
    assert (await one.ask(0, held=10, amount=200)).free == 180
    assert (await other.ask(0, held=10)).free == 180
    assert (await other.ask(0, held=10, amount=150)).free == 130


async def test_a_budget_is_what_the_ledger_knows_at_least(stores: Stores) -> None:
    """A book that begins empty counts what was spent before."""
    one = Member(stores, "one")
    month = {"kind": LeaseKind.MONTH, "amount": 10**15}
    period = (await one.ask(0, **month)).period
    answer = await one.ask(0, floor=4 * 10**14, period=period, **month)
    assert (answer.used, answer.free) == (4 * 10**14, 6 * 10**14)
    assert (await one.ask(0, floor=10, period=period, **month)).used == 4 * 10**14
    assert (await one.ask(0, floor=9 * 10**14, period=period - 1, **month)).used == 4 * 10**14
    assert 0 < answer.resets_in_s <= 31 * 86400


async def test_a_book_that_began_anew_waits_for_all(stores: Stores) -> None:
    """After a restart nothing is granted until every gateway had time to say what it holds."""
    one, other = Member(stores, "one"), Member(stores, "other")
    assert (await one.ask(4, **SLOTS)).grant == 4
    await other.ask(0, **SLOTS)
    await stores.forget()
    one.reconnect()
    other.reconnect()
    first = await other.say(LeaseReport("l", LeaseKind.SLOTS, 4, 0, 4, 1, 4))
    assert first.is_settling
    assert first.answers[0].grant == 0
    await one.ask(4, held=4, **SLOTS)
    async with asyncio.timeout(TIMEOUT_S):
        while (reply := await other.say(LeaseReport("l", LeaseKind.SLOTS, 4, 0, 4, 1, 4))).is_settling:
            await asyncio.sleep(0.05)
    assert reply.answers[0].held_by_others == 4
    assert reply.answers[0].grant == 0


async def test_a_full_exchange_is_answered(stores: Stores) -> None:
    """The largest exchange that is allowed works; a larger one is refused by name."""
    one = Member(stores, "one")
    reports = tuple(LeaseReport(f"l{index}", LeaseKind.RATE, 10, 0, 5, 1, 5) for index in range(129))
    reply = await one.say(*reports[:128])
    assert [answer.grant for answer in reply.answers] == [5] * 128
    with pytest.raises(StoreLostError):
        await one.say(*reports)
