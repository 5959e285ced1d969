"""Drills of shared limits with real processes: kill -9 of Redis, of a worker, and a coordinator that begins anew."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from tests.fixtures.redis_server import RedisServer
from tests.harness.polling import until
from tests.harness.raw_client import RawClient, ask, post
from tests.harness.shared_gateways import OUTPUT_TOKENS, SharedGateways, sharing_gateways

from headrace.domain.clock import SystemClock
from headrace.fleet.deploy.coordinator import Coordinator

PLENTY = 100_000
SLOTS = 6
PRICES = {"version": "v1", "models": {"m": {"input_per_million": 0.0, "output_per_million": 1.0}}}
TENANTS: dict[str, dict[str, Any]] = {
    "plenty": {"limits": {"requests_per_min": PLENTY}, "budget": {"per_day": 1.0}},
    "slots": {"limits": {"concurrent_requests": SLOTS}},
    "slim": {"budget": {"per_day": 0.001}},
    "few": {"limits": {"requests_per_min": 20}},
}
DEAR: dict[str, Any] = {"model": "m", "max_tokens": 900}
"""Reserves nine tenths of what `slim` may spend a day."""
SLIM = ("slim", "budget_per_day")
CALL = {"model": "m", "max_tokens": OUTPUT_TOKENS, "messages": [{"role": "user", "content": "for plenty"}]}


@asynccontextmanager
async def under_load(shared: SharedGateways, tenant: str, *, callers: int = 8) -> AsyncIterator[dict[int, int]]:
    """Callers at both gateways, without a pause; yields how often which status came."""
    statuses: dict[int, int] = {}
    is_over = asyncio.Event()

    async def caller(index: int) -> None:
        async with RawClient(shared.gateways[index % len(shared.gateways)].port) as client:
            while not is_over.is_set():
                status = await shared.send(client, tenant)
                statuses[status] = statuses.get(status, 0) + 1
                await asyncio.sleep(0.01)

    async def more(than: int) -> bool:
        return sum(statuses.values()) > than

    async with asyncio.TaskGroup() as group:
        for index in range(callers):
            group.create_task(caller(index))
        await until(lambda: more(callers), what="the first answers")
        yield statuses
        before = sum(statuses.values())
        await until(lambda: more(before + callers), what="answers afterwards")
        is_over.set()


async def is_lost(shared: SharedGateways, expected: float) -> bool:
    return all([await gateway.metric("headrace_sharing_lost ") == expected for gateway in shared.gateways])


async def used(shared: SharedGateways, tenant: str, unit: str) -> list[int]:
    """What each gateway says is used."""
    found: list[int] = []
    for gateway in shared.gateways:
        found += [one.used for one in await gateway.quota() if (one.name, one.unit.value) == (tenant, unit)]
    return found


async def test_redis_is_killed_and_restarted_under_load(mortal_redis: RedisServer, tmp_path: Path) -> None:
    """No request fails while Redis is gone; what was served meanwhile and before counts once when it is back, empty."""
    async with sharing_gateways(tmp_path, TENANTS, redis=mortal_redis.url, prices=PRICES) as shared:
        async with under_load(shared, "plenty") as statuses:
            await until(lambda: is_lost(shared, 0.0), what="Redis to be known")
            mortal_redis.kill()
            await until(lambda: is_lost(shared, 1.0), what="the loss to be seen")
            alone = sum(statuses.values())
            await until(lambda: sum(statuses.values()) > alone + 100, what="answers meanwhile")
            mortal_redis.start()
            await until(lambda: is_lost(shared, 0.0), what="sharing again")
        assert set(statuses) == {200}
        served = shared.engine.total["plenty"]

        async def counts_once() -> bool:
            total = shared.engine.total["plenty"]
            spent = total * OUTPUT_TOKENS * 1000
            requests = await used(shared, "plenty", "requests_per_min")
            money = await used(shared, "plenty", "budget_per_day")
            # What one gateway had not heard of the other's spending yet is lost with Redis, until the ledger tells.
            return requests == [total] * 2 and all(0.8 * spent <= one <= spent for one in money)

        for gateway in shared.gateways:  # Whoever has just been used goes on exchanging for some seconds.
            await ask(gateway.port, post(CALL, shared.keys["plenty"]))
        assert served > 8
        await until(counts_once, what="every request to be counted once at both gateways")


async def test_a_closed_store_refuses_by_name_and_heals(mortal_redis: RedisServer, tmp_path: Path) -> None:
    """With on_store_loss closed, nothing above what was leased is served without Redis, and the refusal says why."""
    closed = {"on_store_loss": "closed"}
    async with sharing_gateways(tmp_path, TENANTS, redis=mortal_redis.url, sharing=closed, prices=PRICES) as shared:
        await until(lambda: is_lost(shared, 0.0), what="Redis to be known")
        mortal_redis.kill()
        await until(lambda: is_lost(shared, 1.0), what="the loss to be seen")
        body = {"model": "m", "messages": [{"role": "user", "content": "for few"}]}
        refused = await ask(shared.gateways[0].port, post(body, shared.keys["few"]))
        assert (refused.status, refused.code) == (503, "saturated")
        assert "store is out of reach" in refused.json["error"]["message"]
        mortal_redis.start()
        await until(lambda: is_lost(shared, 0.0), what="sharing again")
        assert (await ask(shared.gateways[0].port, post(body, shared.keys["few"]))).status == 200


async def test_slots_of_a_killed_worker_are_free_again(tmp_path: Path) -> None:
    """A worker is killed with all slots in work; the other worker then has them all, and never more."""
    async with sharing_gateways(tmp_path, TENANTS, prices=PRICES) as shared:
        engine, (one, other) = shared.engine, shared.gateways
        engine.is_held = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            cut = [group.create_task(_cut(shared, one.port)) for _ in range(SLOTS)]
            await until(lambda: _has(engine.now, SLOTS), what="all slots taken")
            assert one.process is not None
            one.process.send_signal(signal.SIGKILL)
            await one.process.wait()
            await asyncio.gather(*cut)
            engine.is_held.set()
            await until(lambda: _has(engine.total, SLOTS), what="the engine to be done with the dead worker's requests")
            engine.is_held, engine.most["slots"] = asyncio.Event(), 0
            for _ in range(SLOTS):
                group.create_task(_until_served(shared, other.port))
            await until(lambda: _has(engine.now, SLOTS), what="the dead worker's slots")
            engine.is_held.set()
        assert engine.most["slots"] == SLOTS


@pytest.mark.parametrize("through", ["coordinator", "redis"])
async def test_a_killed_worker_takes_no_part_of_a_budget_with_it(
    through: str, mortal_redis: RedisServer, tmp_path: Path
) -> None:
    """Its requests in work had reserved nearly all of the budget: the other worker can soon spend it."""
    redis = mortal_redis.url if through == "redis" else None
    sharing = {"member_s": 2.0} if redis else {}
    async with sharing_gateways(tmp_path, TENANTS, redis=redis, prices=PRICES, sharing=sharing) as shared:
        one, other = shared.gateways
        shared.engine.is_held = asyncio.Event()
        async with RawClient(one.port) as client, RawClient(other.port) as second:
            await client.send(
                post({**DEAR, "messages": [{"role": "user", "content": "for slim"}]}, shared.keys["slim"])
            )

            async def is_served() -> bool:
                return await shared.send(second, "slim", max_tokens=DEAR["max_tokens"]) == 200

            async def is_reserved() -> bool:
                return shared.engine.now.get("slim", 0) == 1 and not await is_served()

            await until(is_reserved, what="the reservation to be known to both")
            assert one.process is not None
            one.process.send_signal(signal.SIGKILL)
            await one.process.wait()
            shared.engine.is_held.set()
            await until(is_served, what="the budget to be free again")

        async def is_spent() -> bool:
            found = [one.used for one in await other.quota() if (one.name, one.unit.value) == SLIM]
            return found == [OUTPUT_TOKENS * 1000]

        await until(is_spent, what="what was spent, and no more, to count")


async def test_the_coordinator_begins_anew_under_load(tmp_path: Path) -> None:
    """A supervisor is replaced: requests go on, and at no moment more are in work than the limit allows."""
    closed = {"on_store_loss": "closed"}
    async with sharing_gateways(tmp_path, TENANTS, sharing=closed, prices=PRICES) as shared:
        assert shared.coordinator is not None
        shared.engine.hold_s = 0.05
        async with under_load(shared, "slots", callers=12) as statuses:
            await shared.coordinator.close()
            await until(lambda: is_lost(shared, 1.0), what="the loss to be seen")
            anew = Coordinator(shared.coordinator.path, SystemClock(), structlog.get_logger())
            await anew.open()
            await until(lambda: is_lost(shared, 0.0), what="sharing again")
            served = statuses[200]

            async def goes_on() -> bool:
                return statuses[200] > served + 20

            await until(goes_on, what="requests after the restart")
        await anew.close()
        assert shared.engine.most["slots"] <= SLOTS
        assert set(statuses) <= {200, 429, 503}


async def _has(counts: dict[str, int], count: int) -> bool:
    return counts.get("slots", 0) >= count


async def _cut(shared: SharedGateways, port: int) -> None:
    try:
        await _until_served(shared, port)
    except (OSError, asyncio.IncompleteReadError):
        return


async def _until_served(shared: SharedGateways, port: int) -> None:
    async with RawClient(port) as client:
        while await shared.send(client, "slots") != 200:
            await asyncio.sleep(0.02)
