"""Limits that change under load: what is in work goes on, what is new follows the new rule, counts survive."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.harness.polling import until
from tests.harness.raw_client import RawAnswer, ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.saturating import CountingEngine, saturate, work
from tests.harness.scripted_engine import ScriptedEngine

from headrace.domain.calendar import day_of
from headrace.domain.clock import SystemClock
from headrace.domain.quota import Level, Spent, Unit
from headrace.domain.worker import SetSpent

PRICES = {"models": {"m": {"input_per_million": 1, "output_per_million": 2}}}


@pytest.fixture
def counting(engine: ScriptedEngine) -> CountingEngine:
    counting = CountingEngine()
    counting.join(engine)
    return counting


class Scene:
    """A gateway whose one tenant can be declared anew."""

    def __init__(self, gateway: RunningGateway, engine: ScriptedEngine) -> None:
        self.gateway = gateway
        self._engine = engine

    async def declare(self, **tenant: Any) -> None:
        pools = {"p": remote_pool(self._engine.url)}
        reply = await self.gateway.configure(declare(pools, tenants={"default": tenant}, prices=PRICES))
        assert reply.ok, reply.message

    async def ask(self, **more: Any) -> RawAnswer:
        return await ask(self.gateway.port, post(work(**more), self.gateway.key))


@pytest.fixture
async def scene(engine: ScriptedEngine, tmp_path: Path):
    declaration = declare({"p": remote_pool(engine.url)}, tenants={"default": {}}, prices=PRICES)
    async with RunningGateway(tmp_path, declaration) as gateway:
        await gateway.wait_ready()
        yield Scene(gateway, engine)


async def test_what_is_in_work_counts_under_a_limit_that_is_new(scene: Scene, counting: CountingEngine) -> None:
    """Ten requests run when a limit of two is declared: they all finish, and nothing new starts before eight have."""
    held = [asyncio.ensure_future(scene.ask(hold_s=-1)) for _ in range(10)]
    await until(lambda: counting.at_once == 10)
    await scene.declare(limits={"concurrent_requests": 2})
    refused = await scene.ask()
    assert (refused.status, refused.json["error"]["used"]) == (429, 10)
    counting.release.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 10
    await scene.gateway.wait_idle()
    assert (await scene.ask()).status == 200
    counting.most_at_once = 0
    await saturate(scene.gateway, scene.gateway.key, work(10, 3, 0.02), callers=20, most=20)
    assert counting.most_at_once == 2


async def test_a_reload_is_no_fresh_start(scene: Scene, counting: CountingEngine) -> None:
    """What was used of a limit stays used when it is raised or lowered, under load, and no request fails of it."""
    await scene.declare(limits={"requests_per_min": 50})
    asking = asyncio.ensure_future(saturate(scene.gateway, scene.gateway.key, work(), callers=50))
    for amount in (60, 70, 80, 100):
        await asyncio.sleep(0.02)
        await scene.declare(limits={"requests_per_min": amount})
    assert len(await asking) == counting.answered == 100
    await scene.declare(limits={"requests_per_min": 10})
    refused = await scene.ask()
    assert (refused.status, refused.json["error"]["used"]) == (429, 100)


async def test_a_suspended_tenant_finishes_what_it_has(scene: Scene, counting: CountingEngine) -> None:
    """Suspension is for new requests."""
    held = [asyncio.ensure_future(scene.ask(hold_s=-1)) for _ in range(5)]
    await until(lambda: counting.at_once == 5)
    await scene.declare(suspended=True)
    assert (await scene.ask()).status == 403
    counting.release.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 5
    await scene.declare()
    assert (await scene.ask()).status == 200


async def test_a_spent_budget_keeps_out_only_what_is_new(scene: Scene, counting: CountingEngine) -> None:
    """What runs when the budget is spent finishes; the refusal says that retrying is no use, and metrics that 80 and
    100 percent were passed.
    """
    await scene.declare(budget={"per_day": 0.003})
    held = [asyncio.ensure_future(scene.ask(hold_s=-1, max_tokens=50)) for _ in range(5)]
    await until(lambda: counting.at_once == 5)
    good = await saturate(scene.gateway, scene.gateway.key, work(max_tokens=50), callers=20)
    refused = await scene.ask(max_tokens=50)
    counting.release.set()
    assert [answer.status for answer in await asyncio.gather(*held)] == [200] * 5
    assert 5 <= len(good) <= 8  # fifteen requests of 0.0002 each; what is held is reserved as estimated
    error = refused.json["error"]
    assert (refused.status, error["code"], error["type"]) == (429, "quota_exhausted", "insufficient_quota")
    assert (refused.headers["x-should-retry"], error["level"], error["limit"]) == ("false", "tenant", "budget_per_day")
    assert (error["limit_amount"], error["used"]) == (0.003, pytest.approx(0.003, rel=0.15))
    good += await saturate(scene.gateway, scene.gateway.key, work(max_tokens=50), callers=20)
    await scene.gateway.wait_idle()
    labels = 'level="tenant",name="default",period="day"'
    used = await scene.gateway.metric(f'headrace_budget_used{{currency="USD",{labels}}}')
    assert used == pytest.approx((5 + len(good)) * 0.0002)
    async with asyncio.timeout(20):
        while await scene.gateway.metric(f'headrace_budget_marks_total{{{labels},share="0.8"}}') is None:
            await asyncio.sleep(0.05)


async def test_what_was_spent_before_a_restart_stays_spent(scene: Scene, counting: CountingEngine) -> None:
    """A worker counts at least what the ledger knows, whether the budget is declared already or only later."""
    today_at = day_of(SystemClock().wall_s())[0]

    def spent(nanos: int) -> SetSpent:
        one = Spent(level=Level.TENANT, name="default", unit=Unit.BUDGET_PER_DAY, nanos=nanos, period_start_at=today_at)
        return SetSpent(spent=(one,))

    await scene.gateway.command(spent(500_000))
    await scene.declare(budget={"per_day": 0.001})
    labels = 'currency="USD",level="tenant",name="default",period="day"'
    assert await scene.gateway.metric(f"headrace_budget_used{{{labels}}}") == 0.0005
    assert (await scene.ask(max_tokens=50)).status == 200
    await scene.gateway.command(spent(990_000))
    refused = await scene.ask(max_tokens=50)
    assert (refused.status, refused.json["error"]["used"]) == (429, 0.00099)
