"""Prefill and decode engines of which some were upgraded and some were not: simulated vLLM, as processes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.harness.polling import until
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import MODEL, SimulatedProcess

from headrace.cli.handover_view import mismatch_lines
from headrace.cli.route import split_line
from headrace.domain.routing_status import RouteExplanation, SplitView
from headrace.domain.worker import ExplainRoute
from headrace.engines.simulated.config import DialectKind

CHAT = "/v1/chat/completions"
OLD, NEW = "0.33.0", "0.34.0"


def engine_of(folder: Path, role: str, version: str) -> SimulatedProcess:
    return SimulatedProcess(DialectKind.VLLM, folder, "--role", role, "--engine-version", version)


async def restart(engine: SimulatedProcess, version: str) -> None:
    """As an upgrade does: another process on the same port."""
    await engine.kill()
    engine.arguments = (*engine.arguments[:-1], version)
    await engine.start()
    await engine.wait_ready()


@dataclass(kw_only=True)
class Scene:
    """One prefill and two decode engines behind a gateway."""

    prefill: SimulatedProcess
    one: SimulatedProcess
    other: SimulatedProcess
    gateway: RunningGateway
    client: httpx.AsyncClient
    prompts: int = 0

    def body(self) -> dict[str, Any]:
        """A prompt that is long enough to be handed over, and that nobody has cached."""
        self.prompts += 1
        messages = [{"role": "user", "content": f"{self.prompts} words, " * 100}]
        return {"model": MODEL, "messages": messages, "max_tokens": 4}

    async def ask(self, count: int) -> None:
        answers = await asyncio.gather(
            *(self.client.post(self.gateway.url + CHAT, json=self.body()) for _ in range(count))
        )
        assert {answer.status_code for answer in answers} == {200}
        await self.gateway.wait_idle()

    async def metric(self, name: str) -> float:
        lines = (await self.gateway.metrics()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"headrace_handover{name}"))

    async def pairs(self) -> tuple[float, float]:
        """Pairs that fit, and pairs that do not."""
        states = ("fits", "kv_layout_mismatch")
        fits, unfit = [await self.metric(f'_pairs{{model="{MODEL}",state="{state}"') for state in states]
        return fits, unfit

    async def wait_pairs(self, *expected: float) -> None:
        async def are_seen() -> bool:
            return await self.pairs() == expected

        await until(are_seen, what=f"pairs {expected}")

    async def split(self) -> SplitView:
        wish = ExplainRoute(body=msgspec.json.encode(self.body()).decode(), path=CHAT)
        found = msgspec.json.decode((await self.gateway.command(wish)).text, type=RouteExplanation).split
        assert found is not None
        return found


async def fetched(engine: SimulatedProcess) -> float:
    """Prompts whose KV an engine has got from another."""
    async with httpx.AsyncClient(timeout=10) as client:
        page = (await client.get(f"{engine.url}/metrics")).text
    name = "vllm:external_prefix_cache_hits_total{"
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


@contextlib.asynccontextmanager
async def scene_of(folder: Path) -> AsyncGenerator[Scene]:
    """The first decode engine is as old as prefill, the other newer."""
    prefill, one, other = (engine_of(folder, *each) for each in (("prefill", OLD), ("decode", OLD), ("decode", NEW)))
    async with prefill, one, other:
        rules = {"min_tokens": 50, "min_gain_s": -3600, "warm_up": False}
        pools = {
            "prefill": remote_pool(prefill.url, engine="vllm", disaggregation={"role": "prefill"}, handover=rules),
            "decode": remote_pool(one.url, other.url, engine="vllm", disaggregation={"role": "decode"}),
        }
        declaration = declare({name: {**pool, "model": MODEL} for name, pool in pools.items()}, models={MODEL: {}})
        async with RunningGateway(folder / "state", declaration) as gateway:
            await gateway.wait_ready(endpoints=3)
            async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {gateway.key}"}) as client:
                yield Scene(prefill=prefill, one=one, other=other, gateway=gateway, client=client)


async def test_a_decode_engine_of_another_version_is_never_paired_until_it_is_alike(tmp_path: Path) -> None:
    """Upgraded engines are seen at the next probe: none of another version is handed a prompt, all answer whole."""
    async with scene_of(tmp_path) as scene:
        await scene.wait_pairs(1, 1)
        await scene.ask(8)
        assert await scene.metric('s_total{end="completed"') == 8
        assert await fetched(scene.one) > 0
        assert await fetched(scene.other) == 0
        status = await scene.gateway.status()
        assert sorted(str(each.version) for each in status.endpoints) == [OLD, OLD, NEW]
        assert [(each.fits, each.unfit, each.not_measured) for each in status.handovers] == [(1, 1, 0)]
        await check_is_said(scene)

        await restart(scene.one, NEW)
        await scene.wait_pairs(0, 2)
        await scene.ask(4)
        assert await scene.metric("s_total{") == 8
        assert await scene.metric('_decisions_total{model="sim-model",reason="kv_layout_mismatch"') == 4
        assert split_line(await scene.split()) == "not split: no prefill engine's KV fits a decode engine"
        assert (await scene.gateway.status()).is_ready

        await restart(scene.prefill, NEW)
        await scene.wait_pairs(2, 0)
        await scene.ask(8)
        assert await scene.metric('s_total{end="completed"') == 16
        assert (await scene.split()).prefill_version == NEW
    log = scene.gateway.log_path.read_text()
    assert "prefill and decode engines do not fit and are not paired" in log
    assert "no prefill engine fits any decode engine" in log


async def check_is_said(scene: Scene) -> None:
    """`headrace route explain` names both versions, and who is left out."""
    split = await scene.split()
    other = f"decode/127.0.0.1:{scene.other.port}"
    assert (split.prefill_version, split.decode_version) == (OLD, OLD)
    why = f"version is {OLD} at prefill and {NEW} at decode"
    prefill = f"prefill/127.0.0.1:{scene.prefill.port}"
    assert mismatch_lines(split.mismatches) == [f"not paired: {prefill} with {other}: kv_layout_mismatch, {why}"]
