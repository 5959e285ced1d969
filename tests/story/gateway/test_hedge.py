"""A second attempt while the first token is late: the faster answer counts, the other is cancelled, one is charged."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio
from tests.harness.journal_records import records_of
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import (
    DONE,
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    chunk_event,
    framed,
    usage_event,
    whole,
)

from headrace.gateway.forwarding.core.lateness import FEWEST

EVERY = ""


class Speaking:
    """Says its name after a while; whether it was cut before is seen."""

    def __init__(self, name: str, wait_s: float = 0.0) -> None:
        self.name = name
        self.wait_s = wait_s
        self.fails = False

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        await asyncio.sleep(self.wait_s)
        if self.fails:
            writer.transport.abort()
            return
        events = chunk_event(self.name) + chunk_event(finish="stop") + usage_event() + DONE
        writer.write(framed(events) + b"0\r\n\r\n")
        await writer.drain()


class Two:
    """Two engines behind a gateway that hedges."""

    def __init__(self, engines: list[ScriptedEngine], gateway: RunningGateway) -> None:
        self.engines = engines
        self.gateway = gateway
        self.first, self.second = Speaking("first"), Speaking("second")
        for engine, speaking in zip(engines, (self.first, self.second), strict=True):
            engine.scripts = {EVERY: speaking}

    async def tell(self, **fields: Any) -> str:
        body = {"model": "m", "messages": [{"role": "user", "content": "script:"}], "stream": True, **fields}
        answer = await ask(self.gateway.port, post(body, self.gateway.key))
        events = [event.removeprefix(b"data: ") for event in answer.body.split(b"\n\n") if event]
        assert events[-1] == b"[DONE]", answer.body
        return json.loads(events[0])["choices"][0]["delta"]["content"]

    async def learn(self) -> None:
        """Enough first tokens to know when one is late."""
        for _ in range(FEWEST + 2):
            await self.tell()
        for engine in self.engines:
            engine.seen.clear()

    async def hedges(self, result: str) -> float:
        return await self.gateway.metric(f'headrace_hedges_total{{model="m",result="{result}"}}') or 0.0


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(ScriptedEngine()) for _ in range(2)]
        hedge = {"enabled": True, "min_delay_s": 0.2, "budget_ratio": 1.0}
        pool = remote_pool(*(engine.url for engine in engines), hedge=hedge)
        gateway = await stack.enter_async_context(RunningGateway(tmp_path, declare({"p": pool})))
        await gateway.wait_ready(endpoints=2)
        yield Two(engines, gateway)


async def test_the_faster_of_two_answers_counts(two: Two) -> None:
    """Wherever it began: the slow engine's request is cancelled, and the ledger has one request with both attempts."""
    await two.learn()
    two.first.wait_s = 20.0
    said = [await two.tell() for _ in range(4)]
    assert said == ["second"] * 4
    won = await two.hedges("won")
    assert won >= 1
    async with asyncio.timeout(20):
        while not all(seen.was_cut for seen in two.engines[0].seen):
            await asyncio.sleep(0.01)
    status = await two.gateway.wait_idle()
    assert status.in_flight == 0
    await two.gateway.stop()
    records = records_of(two.gateway.settings.journal_dir)[-4:]
    assert sum(record["attempts"] == 2 for record in records) == won
    assert {record["output_tokens"] for record in records} == {3}


async def test_a_hedge_that_is_slower_is_cancelled(two: Two) -> None:
    """The first answers a little late: it counts, and the second engine is told that nobody waits."""
    await two.learn()
    two.first.wait_s = two.second.wait_s = 1.0
    said = await two.tell()
    assert await two.hedges("lost") == 1
    loser = two.engines[said == "first"]
    async with asyncio.timeout(20):
        while not loser.seen[-1].was_cut:
            await asyncio.sleep(0.01)


async def test_a_hedge_stands_in_for_a_first_attempt_that_dies(two: Two) -> None:
    """The first attempt breaks while the second is under way: the second is the answer, without a third."""
    await two.learn()
    two.first.wait_s, two.first.fails = 0.5, True
    two.second.wait_s = 1.0
    said = [await two.tell() for _ in range(2)]
    assert said == ["second"] * 2
    assert await two.hedges("won") + await two.hedges("failed") >= 1
    assert len(two.engines[1].seen) == 2


async def test_a_hedge_stands_in_for_a_first_attempt_that_finds_the_prompt_too_long(two: Two) -> None:
    """The second engine may have a longer context: what is under way there is the answer, and nobody is blamed."""
    await two.learn()

    async def refuse(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.6)
        writer.write(whole(400, b'{"error":{"message":"maximum context length is 5 tokens","code":400}}'))
        await writer.drain()

    two.engines[0].scripts = {EVERY: refuse}
    two.second.wait_s = 1.2
    said = [await two.tell() for _ in range(2)]
    assert said == ["second"] * 2
    assert len(two.engines[0].seen) >= 1
    assert {one.failures for one in (await two.gateway.wait_idle()).endpoints} == {0}


async def test_whole_answers_and_offline_work_are_not_hedged(two: Two) -> None:
    """Nothing is known of a whole answer's first token, and offline work has time."""
    await two.learn()

    async def late(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.6)
        writer.write(whole(200, b'{"id":"a","choices":[]}'))
        await writer.drain()

    for engine in two.engines:
        engine.scripts = {EVERY: late}
    body = {"model": "m", "messages": [{"role": "user", "content": "script:"}]}
    assert (await ask(two.gateway.port, post(body, two.gateway.key))).status == 200
    offline = {**body, "stream": True}
    await ask(two.gateway.port, post(offline, two.gateway.key, **{"x-headrace-class": "offline"}))
    assert sum(len(engine.seen) for engine in two.engines) == 2
    assert [await two.hedges(result) for result in ("won", "lost", "failed")] == [0, 0, 0]
