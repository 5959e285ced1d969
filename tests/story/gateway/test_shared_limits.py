"""Two gateway processes under one set of limits, as callers and an engine see them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.harness.polling import until
from tests.harness.raw_client import RawClient
from tests.harness.shared_gateways import INPUT_TOKENS, OUTPUT_TOKENS, SharedGateways, sharing_gateways

from headrace.domain.quota_status import merge_limits

REQUESTS = 240
"""What each of the limits below lets through."""
SLOTS = 16
TENANTS: dict[str, dict[str, Any]] = {
    "requests": {"limits": {"requests_per_min": REQUESTS}},
    "input": {"limits": {"input_tokens_per_min": REQUESTS * INPUT_TOKENS}},
    "output": {"limits": {"output_tokens_per_min": REQUESTS * OUTPUT_TOKENS}},
    "gpu": {"limits": {"gpu_seconds_per_min": REQUESTS * (INPUT_TOKENS / 1000 + OUTPUT_TOKENS / 100)}},
    "day": {"budget": {"per_day": REQUESTS * OUTPUT_TOKENS * 1e-6}},
    "month": {"budget": {"per_month": REQUESTS * OUTPUT_TOKENS * 1e-6}},
    "slots": {"limits": {"concurrent_requests": SLOTS}},
    "interactive": {"limits": {"concurrent_interactive": SLOTS}, "default_class": "interactive"},
    "offline": {"limits": {"concurrent_offline": SLOTS}, "default_class": "offline"},
}
PRICES = {"version": "v1", "models": {"m": {"input_per_million": 0.0, "output_per_million": 1.0}}}
RATES = {"prefill_tokens_per_s": 1000, "decode_tokens_per_s": 100}


@pytest_asyncio.fixture(params=["coordinator", "redis"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SharedGateways]:
    redis = request.getfixturevalue("valkey_server").url if request.param == "redis" else None
    namespace = {"namespace": tmp_path.name}
    async with sharing_gateways(
        tmp_path, TENANTS, redis=redis, sharing=namespace, prices=PRICES, pool={"rates": RATES}
    ) as running:
        yield running


async def test_two_processes_hold_every_limit(shared: SharedGateways) -> None:
    """200 callers at two gateways use at least 95 % of each limit and nothing above it, as the engine counts."""
    shared.engine.hold_s = 0.02
    for tenant in ("requests", "input", "output", "gpu", "day", "month"):
        await shared.call_until_refused(tenant, callers=200)
        assert 0.95 * REQUESTS <= shared.engine.total[tenant] <= REQUESTS, tenant
    for tenant in ("slots", "interactive", "offline"):
        await _fill_slots(shared, tenant)
        assert shared.engine.most[tenant] == SLOTS, tenant


async def _fill_slots(shared: SharedGateways, tenant: str) -> None:
    """200 callers until the engine has seen all slots taken at once, and a thousand requests after that."""
    engine, is_over = shared.engine, asyncio.Event()
    engine.is_held = asyncio.Event()

    async def caller(index: int) -> None:
        async with RawClient(shared.gateways[index % 2].port) as client:
            while not is_over.is_set():
                if await shared.send(client, tenant) != 200:
                    await asyncio.sleep(0.2)

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for index in range(200):
            group.create_task(caller(index))
        while engine.now.get(tenant, 0) < SLOTS * 0.95:
            await asyncio.sleep(0.01)
        engine.is_held.set()
        while engine.total.get(tenant, 0) < 300:
            await asyncio.sleep(0.01)
        is_over.set()
    engine.is_held = None


@pytest.mark.parametrize("shared", ["coordinator"], indirect=True)
async def test_a_whole_limit_moves_to_where_the_callers_are(shared: SharedGateways) -> None:
    """Callers of one gateway use the whole limit, then those of the other do, and no slot is lost on the way."""
    engine = shared.engine
    for gateway in shared.gateways:
        engine.is_held = asyncio.Event()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(SLOTS):
                group.create_task(_until_served(shared, gateway.port))
            while engine.now.get("slots", 0) < SLOTS:
                await asyncio.sleep(0.01)
            engine.is_held.set()
    assert engine.most["slots"] == SLOTS


async def _until_served(shared: SharedGateways, port: int) -> None:
    async with RawClient(port) as client:
        while await shared.send(client, "slots") != 200:
            await asyncio.sleep(0.02)


SMALL: dict[str, tuple[dict[str, Any], int]] = {
    "requests": ({"limits": {"requests_per_min": 3}}, 3),
    "output": ({"limits": {"output_tokens_per_min": 3 * OUTPUT_TOKENS}}, 3),
    "day": ({"budget": {"per_day": 3.4 * OUTPUT_TOKENS * 1e-6}}, 3),
    "slots": ({"limits": {"concurrent_requests": 1}}, 6),
}
"""Limits of a few requests, and how many of them are served one after the other."""


@pytest.mark.parametrize("store", ["coordinator", "redis"])
async def test_a_newcomer_may_use_a_small_limit_up(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Requests one at a time, whichever process they reach, are refused once the limit is used up, and not before."""
    redis = request.getfixturevalue("valkey_server").url if store == "redis" else None
    tenants = {f"{name}-{turn}": declared for name, (declared, _) in SMALL.items() for turn in range(3)}
    namespace = {"namespace": tmp_path.name}
    async with sharing_gateways(
        tmp_path, tenants, redis=redis, sharing=namespace, prices=PRICES, pool={"rates": RATES}
    ) as shared:
        for tenant in tenants:
            name = tenant.split("-")[0]
            served = SMALL[name][1]
            statuses = [await _send_anew(shared, tenant, turn % 2) for turn in range(served)]
            assert statuses == [200] * served, tenant
            if name != "slots":
                assert await _send_anew(shared, tenant, 0) == 429, tenant


async def _send_anew(shared: SharedGateways, tenant: str, gateway: int) -> int:
    async with RawClient(shared.gateways[gateway].port) as client:
        return await shared.send(client, tenant)


async def test_slots_in_work_and_slots_that_two_workers_hold_ready_are_told_apart(tmp_path: Path) -> None:
    """What is shown as used is what the engine has; what workers lease beside that is shown as leased, and is left."""

    leased: list[int] = []

    async def shown(shared: SharedGateways) -> tuple[int, int | None]:
        (one,) = merge_limits([await gateway.quota() for gateway in shared.gateways])
        return one.used, one.leased

    async def is_settled(shared: SharedGateways, used: int) -> bool:
        """Ten looks in a row: one may fall between what two workers say of a slot that moves."""
        seen = [await shown(shared) for _ in range(10)]
        leased.extend(ahead or 0 for _, ahead in seen)
        return {one for one, _ in seen} == {used}

    tenants: dict[str, dict[str, Any]] = {"slots": {"limits": {"concurrent_requests": SLOTS}}}
    async with sharing_gateways(tmp_path, tenants) as shared:
        engine = shared.engine
        engine.is_held = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(_until_served(shared, shared.gateways[number % 2].port))
            await until(lambda: engine.now.get("slots", 0) == 5, what="five requests in work")
            await until(lambda: is_settled(shared, 5), what="five slots shown as used")
            assert max(leased) > 0, "a worker in use holds one ready"
            engine.is_held.set()
        await until(lambda: is_settled(shared, 0), what="no slot shown as used")
