"""Prompts that do not fit everywhere, pools that are for some prompts, and what spills over between them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.harness.raw_client import RawAnswer, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, answer_normally, whole

from headrace.domain.routing_status import RouteExplanation
from headrace.domain.worker import ExplainRoute


async def dawdle(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(1.0)
    await answer_normally(engine, request, writer)


class Two:
    """Two pools of one model, `near` and `far`, each of one engine, behind a gateway."""

    def __init__(self, near: ScriptedEngine, far: ScriptedEngine, gateway: RunningGateway) -> None:
        self.near, self.far, self.gateway = near, far, gateway

    async def ask(self, text: str, **fields: Any) -> RawAnswer:
        return await ask(self.gateway.port, post(chat(text, **fields), self.gateway.key))

    async def explain(self, text: str, **fields: Any) -> RouteExplanation:
        wish = ExplainRoute(body=json.dumps(chat(text, **fields)), path="/v1/chat/completions", tenant="")
        reply = await self.gateway.command(wish)
        assert reply.ok, reply.message
        return msgspec.json.decode(reply.text, type=RouteExplanation)

    async def wait_explained(self, text: str, reason: str) -> RouteExplanation:
        """Wait until a candidate is left out for such a reason: engines are asked for their context after a probe."""
        async with asyncio.timeout(30):
            while True:
                found = await self.explain(text)
                if any(reason in each.reason for each in found.candidates):
                    return found
                await asyncio.sleep(0.02)

    async def wait_down(self, pool: str) -> None:
        """Wait until the gateway has seen that a pool's engine is gone, and the other's is not."""
        async with asyncio.timeout(30):
            while True:
                states = {one.pool: one.state for one in (await self.gateway.status()).endpoints}
                if states.pop(pool) == "not-ready" and set(states.values()) == {"ready"}:
                    return
                await asyncio.sleep(0.02)

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.near.seen), len(self.far.seen)


@asynccontextmanager
async def two(
    folder: Path,
    first: dict[str, Any],
    second: dict[str, Any],
    *,
    routing: dict[str, Any] | None = None,
    **contexts: int,
) -> AsyncIterator[Two]:
    """`contexts`: what an engine says of its own."""
    async with ScriptedEngine() as one, ScriptedEngine() as other:
        for name, engine in (("near", one), ("far", other)):
            if name in contexts:
                row = {"id": "m", "max_model_len": contexts[name]}
                engine.pages["/v1/models"] = json.dumps({"object": "list", "data": [row]}).encode()
        pools = {"near": remote_pool(one.url, **first), "far": remote_pool(other.url, **second)}
        async with RunningGateway(folder, declare(pools, models={"m": {"routing": routing or {}}})) as gateway:
            await gateway.wait_ready(endpoints=2)
            yield Two(one, other, gateway)


LONG = "a word and another, " * 400
"""Some 8,000 bytes: 3,200 tokens as first estimated, 2,000 in truth."""


async def test_prompts_go_only_where_they_fit(tmp_path: Path):
    """An engine that says that its context is short is not sent a long prompt, nor a short one with a long answer."""
    async with two(tmp_path, {}, {}, near=1000, far=100_000) as pair:
        found = await pair.wait_explained(LONG, "context: it holds 1000 tokens")
        assert found.picked is not None
        assert found.picked.startswith("far/")
        for _ in range(4):
            assert (await pair.ask(LONG)).status == 200
        assert (await pair.ask("short", max_tokens=5000)).status == 200
        assert pair.asked == (0, 5)
        for _ in range(4):
            assert (await pair.ask("short")).status == 200
        assert pair.near.seen


async def test_what_fits_nowhere_is_refused_with_the_limit(tmp_path: Path):
    """A prompt that is too long by any count is refused at once; one that only may be is left to the engine."""
    async with two(tmp_path, {}, {}, near=1000, far=2000) as pair:
        await pair.wait_explained(LONG, "context: it holds 1000 tokens")
        refused = await pair.ask(LONG * 10)
        assert (refused.status, refused.code) == (400, "context_too_long")
        assert "context of model 'm' holds 2000" in refused.json["error"]["message"]
        assert refused.json["error"]["context_tokens"] == 2000
        assert pair.asked == (0, 0)
        assert (await pair.ask(LONG)).status == 200
        assert pair.asked == (0, 1)


async def test_long_prompts_have_a_pool_of_their_own(tmp_path: Path):
    """Long prompts go to their pool and short ones to the other; each takes the other's only while that is down."""
    near, far = {"accepts": {"max_input_tokens": 1000}}, {"accepts": {"min_input_tokens": 1001, "overflow": False}}
    async with two(tmp_path, near, far) as pair:
        for text in ("short", LONG, "short", LONG):
            assert (await pair.ask(text)).status == 200
        assert pair.asked == (2, 2)
        await pair.far.stop()
        await pair.wait_down("far")
        assert (await pair.ask(LONG)).status == 200
        await pair.far.start()
        await pair.gateway.wait_ready(endpoints=2)
        await pair.near.stop()
        await pair.wait_down("near")
        refused = await pair.ask("short")
        assert (refused.status, refused.code) == (503, "no_ready_endpoint")


async def test_a_full_pool_spills_into_one_that_says_so(tmp_path: Path):
    """While the only place of the interactive pool is taken, the next request goes to the offline pool at once."""
    near = {"accepts": {"classes": ["interactive", "standard"]}, "queue": {"sequences": 1}}
    far = {"accepts": {"classes": ["offline"], "overflow_when": "full"}, "queue": {"sequences": 4}}
    async with two(tmp_path, near, far) as pair:
        pair.near.scripts["slow"] = dawdle
        assert (await pair.ask("hello")).status == 200
        assert pair.asked == (1, 0)
        first = asyncio.ensure_future(pair.ask("script:slow"))
        async with asyncio.timeout(30):
            while len(pair.near.seen) < 2:
                await asyncio.sleep(0.01)
        assert (await pair.ask("hello")).status == 200
        assert not first.done()
        assert pair.asked == (2, 1)
        assert (await first).status == 200


async def refuse(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(500, b'{"error":{"message":"out of order","code":500}}'))
    await writer.drain()


async def test_a_canary_that_fails_is_helped_out_by_the_others(tmp_path: Path):
    """Requests of a split go to the other pool where their own fails, those of a conversation too."""
    async with two(tmp_path, {}, {}, routing={"split": {"near": 1, "far": 1}}) as pair:
        pair.near.scripts["half"] = refuse
        for number in range(4):
            await pair.explain("hello")
            assert (await pair.ask("script:half")).status == 200
            assert (await pair.ask("script:half", prompt_cache_key=f"talk {number}")).status == 200
        assert len(pair.far.seen) == 8
        assert 2 <= len(pair.near.seen) <= 6
