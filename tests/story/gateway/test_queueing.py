"""Requests wait in the gateway until an endpoint has room: a real worker, an engine that ends when it is told to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.harness.journal_records import records_of
from tests.harness.raw_client import RawAnswer, RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, addresses_of, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.domain.errors import ErrorCode

BOUND_S = 30.0


class Desk:
    """An engine that answers when `serve` says so, and the gateway before it."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)
        self.engine = ScriptedEngine({"wait": self._wait})
        self.gateway: RunningGateway

    async def _wait(self, _engine: ScriptedEngine, _request: Seen, writer: asyncio.StreamWriter) -> None:
        await self.turns.acquire()
        writer.write(whole(200, completion()))
        await writer.drain()

    def serve(self, requests: int = 1) -> None:
        for _ in range(requests):
            self.turns.release()

    def send(self, text: str = "", key: str | None = None, **headers: str) -> "asyncio.Task[RawAnswer]":
        body = chat(f"script:wait {text}")
        return asyncio.ensure_future(ask(self.gateway.port, post(body, key or self.gateway.key, **headers)))

    @property
    def seen(self) -> list[str]:
        """What the engine was asked, in order."""
        texts = [json.loads(request.body)["messages"][0]["content"] for request in self.engine.seen]
        return [text.removeprefix("script:wait ") for text in texts]

    async def wait_seen(self, requests: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while len(self.engine.seen) < requests:
                await asyncio.sleep(0.01)

    async def wait_waiting(self, requests: int) -> None:
        """Until so many wait in the gateway."""
        async with asyncio.timeout(BOUND_S):
            while await self.waiting() != requests:
                await asyncio.sleep(0.01)

    async def waiting(self, request_class: str = "standard") -> float | None:
        return await self.gateway.metric(f'headrace_queue_waiting_requests{{class="{request_class}",model="m"')


@contextlib.asynccontextmanager
async def a_desk(
    folder: Path, queue: dict[str, Any], keys: tuple[Any, ...] = (), **sections: Any
) -> AsyncIterator[Desk]:
    """One engine with the declared queue before it."""
    desk = Desk()
    async with desk.engine:
        declaration = declare({"p": remote_pool(desk.engine.url, queue=queue)}, **sections)
        async with RunningGateway(folder, declaration, keys) as desk.gateway:
            await desk.gateway.wait_ready()
            yield desk


async def test_what_finds_no_room_waits_in_the_gateway(tmp_path: Path) -> None:
    """An engine with one place sees one request at a time; the others wait, are answered in turn, and are accounted."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        first = desk.send("one")
        await desk.wait_seen(1)
        others = [desk.send("two")]
        await desk.wait_waiting(1)
        others.append(desk.send("three"))
        await desk.wait_waiting(2)
        assert desk.seen == ["one"]
        desk.serve(3)
        assert [(await answer).status for answer in (first, *others)] == [200, 200, 200]
        assert desk.seen == ["one", "two", "three"]
        status = await desk.gateway.wait_idle()
        assert status.endpoints[0].in_flight == 0
        assert await desk.waiting() == 0
        await desk.gateway.stop()
        waits = [record["queue_s"] for record in records_of(desk.gateway.settings.journal_dir)]
        assert sorted(wait for wait in waits if wait is not None)[-1] > 0


async def test_a_quiet_tenant_goes_before_a_flood(tmp_path: Path) -> None:
    """The one request of another tenant is served next, not after the ten that came before it."""
    key, record = new_key("quiet")
    tenants = {"default": {}, "quiet": {}}
    async with a_desk(tmp_path, {"sequences": 1}, (record,), tenants=tenants) as desk:
        flood = [desk.send("flood")]
        await desk.wait_seen(1)
        flood += [desk.send("flood") for _ in range(9)]
        await desk.wait_waiting(9)
        quiet = desk.send("quiet", key)
        await desk.wait_waiting(10)
        desk.serve(11)
        assert all(answer.status == 200 for answer in await asyncio.gather(*flood, quiet))
        assert "quiet" in desk.seen[1:3]


async def test_urgent_classes_overtake_and_may_be_named_by_the_caller(tmp_path: Path) -> None:
    """`x-headrace-class` puts a request into its band: interactive first, offline last; an unknown class is refused."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        tasks = [desk.send("first")]
        await desk.wait_seen(1)
        for name in ("offline", "standard", "interactive"):
            tasks.append(desk.send(name, x_headrace_class=name))
            async with asyncio.timeout(BOUND_S):
                while not await desk.waiting(name):
                    await asyncio.sleep(0.01)
        refused = await desk.send("x", x_headrace_class="urgent")
        assert (refused.status, refused.code) == (400, ErrorCode.INVALID_REQUEST)
        desk.serve(4)
        await asyncio.gather(*tasks)
        assert desk.seen == ["first", "interactive", "standard", "offline"]


async def test_offline_work_gives_way_before_its_first_byte(tmp_path: Path) -> None:
    """An offline request that an engine has not begun to answer is taken back for an interactive one, and answered
    after it.
    """
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        offline = desk.send("offline", x_headrace_class="offline")
        await desk.wait_seen(1)
        interactive = desk.send("interactive", x_headrace_class="interactive")
        await desk.wait_seen(2)
        async with asyncio.timeout(BOUND_S):
            while not desk.engine.seen[0].was_cut:
                await asyncio.sleep(0.01)
        desk.serve(2)
        assert ((await interactive).status, (await offline).status) == (200, 200)
        assert desk.seen == ["offline", "interactive", "offline"]
        assert await desk.gateway.metric('headrace_queue_withdrawals_total{model="m"}') == 1
        await desk.gateway.wait_idle()


async def test_who_waits_too_long_is_told_when_to_come_back(tmp_path: Path) -> None:
    """At the longest wait of its class a request ends: 503, queue_expired, Retry-After; the engine never saw it."""
    queue = {"sequences": 1, "classes": {"standard": {"longest_wait_s": 0.2}}}
    async with a_desk(tmp_path, queue) as desk:
        first = desk.send("first")
        await desk.wait_seen(1)
        answer = await desk.send("second")
        assert (answer.status, answer.code) == (503, "queue_expired")
        assert int(answer.headers["retry-after"]) >= 1
        assert "class standard" in answer.json["error"]["message"]
        desk.serve()
        assert (await first).status == 200
        await desk.gateway.wait_idle()
        assert desk.seen == ["first"]
        line = 'headrace_requests_total{code="queue_expired",model="m",outcome="evicted"}'
        assert await desk.gateway.metric(line) == 1


@pytest.mark.parametrize(
    ("bound", "status", "code", "level"),
    [("tenant_requests", 429, "rate_limited", "tenant"), ("pool_requests", 503, "saturated", "pool")],
)
async def test_a_full_queue_says_which_bound(tmp_path: Path, bound: str, status: int, code: str, level: str) -> None:
    """One request more than may wait is refused at once, with the limit, its level, its use, and when to come back."""
    async with a_desk(tmp_path, {"sequences": 1, bound: 1}) as desk:
        tasks = [desk.send("first")]
        await desk.wait_seen(1)
        tasks.append(desk.send("second"))
        await desk.wait_waiting(1)
        answer = await desk.send("third")
        assert (answer.status, answer.code) == (status, code)
        error = answer.json["error"]
        assert (error["limit"], error["used"]) == (1, 1)
        assert f"level {level}" in error["message"]
        assert int(answer.headers["retry-after"]) >= 1
        desk.serve(2)
        assert [(await task).status for task in tasks] == [200, 200]
        await desk.gateway.wait_idle()


async def test_a_caller_that_leaves_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    """A disconnected caller and one whose deadline passed leave the queue at once; the engine never sees them."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        first = desk.send("first")
        await desk.wait_seen(1)
        async with RawClient(desk.gateway.port) as leaving:
            await leaving.send(post(chat("script:wait leaving"), desk.gateway.key))
            await desk.wait_waiting(1)
        await desk.wait_waiting(0)
        late = await desk.send("late", x_request_timeout="0.1")
        assert (late.status, late.code) == (504, ErrorCode.DEADLINE_EXCEEDED)
        desk.serve()
        assert (await first).status == 200
        await desk.gateway.wait_idle()
        assert desk.seen == ["first"]
        for code in ("caller_disconnected", "deadline_exceeded"):
            line = f'headrace_requests_total{{code="{code}",model="m",outcome="cancelled"}}'
            assert await desk.gateway.metric(line) == 1


async def test_a_drain_answers_those_who_wait_within_its_bound(tmp_path: Path) -> None:
    """Who waits when a gateway shuts down is still served; what is left at the bound is told, once."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        tasks = [desk.send("first")]
        await desk.wait_seen(1)
        tasks.append(desk.send("second"))
        await desk.wait_waiting(1)
        tasks.append(desk.send("third"))
        await desk.wait_waiting(2)
        await desk.gateway.drain(2.0)
        desk.serve(2)
        await desk.wait_seen(3)
        assert [answer.status for answer in await asyncio.gather(*tasks)] == [200, 200, 503]
        assert tasks[2].result().code == ErrorCode.DRAINING


async def test_the_ladder_is_taken_before_a_request_is_refused(tmp_path: Path) -> None:
    """A tenant that would have to wait gets a shorter answer, or a cheaper model's, as it has declared, and is told."""
    steps = [
        {"step": "shorten", "models": ["m"], "output_tokens": 7},
        {"step": "cheaper_model", "models": ["m"], "model": "small"},
    ]
    other, record = new_key("short")
    tenants = {"default": {"degrade": steps}, "short": {"degrade": steps[:1]}}
    desk = Desk()
    async with desk.engine, ScriptedEngine() as small:
        pools = {
            "p": remote_pool(desk.engine.url, queue={"sequences": 1}),
            "s": remote_pool(small.url, model="small"),
        }
        declaration = declare(pools, models={"m": {}, "small": {}}, tenants=tenants)
        async with RunningGateway(tmp_path, declaration, (record,)) as desk.gateway:
            await desk.gateway.wait_ready(endpoints=2)
            first = desk.send("first")
            await desk.wait_seen(1)
            cheaper = await desk.send("cheaper")
            assert cheaper.status == 200
            assert cheaper.headers["x-headrace-degraded"] == "model=small; output_tokens=7"
            assert (small.seen[0].json["model"], small.seen[0].json["max_tokens"]) == ("small", 7)
            shorter = desk.send("shorter", other)
            await desk.wait_waiting(1)
            desk.serve(2)
            assert (await shorter).headers["x-headrace-degraded"] == "output_tokens=7"
            assert desk.engine.seen[1].json["max_tokens"] == 7
            assert "x-headrace-degraded" not in (await first).headers
            await desk.gateway.wait_idle()
            line = 'headrace_queue_degraded_total{model="m",step="model"}'
            assert await desk.gateway.metric(line) == 1
            await desk.gateway.stop()
            records = records_of(desk.gateway.settings.journal_dir)
            marks = {"model=small; output_tokens=7", "output_tokens=7", None}
            assert {record["degraded"] for record in records} == marks
            assert {record["requested_model"] for record in records} == {"m"}


async def _never(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_a_cheaper_model_that_cannot_help_is_no_way_out(tmp_path: Path) -> None:
    """While it has no endpoint, or its own queue is full, a request waits for the model that was asked for."""
    steps = [{"step": "cheaper_model", "models": ["m"], "model": "small"}, {"step": "shorten", "output_tokens": 7}]
    desk, small = Desk(), ScriptedEngine()
    async with desk.engine, small:
        pools = {
            "p": remote_pool(desk.engine.url, queue={"sequences": 1}),
            "s": remote_pool(small.url, model="small", queue={"sequences": 1, "pool_requests": 0}),
        }
        declaration = declare(pools, models={"m": {}, "small": {}}, tenants={"default": {"degrade": steps}})
        async with RunningGateway(tmp_path, declaration) as desk.gateway:
            await desk.gateway.wait_ready(endpoints=2)
            small.scripts["hold"] = _never
            tasks = [desk.send("first")]
            await desk.wait_seen(1)
            body = post(chat("script:hold", model="small"), desk.gateway.key)
            kept = asyncio.ensure_future(ask(desk.gateway.port, body))
            async with asyncio.timeout(20):
                while not small.open_requests:
                    await asyncio.sleep(0.01)
            tasks.append(desk.send("full"))
            await desk.wait_waiting(1)
            await small.stop()
            assert (await kept).status == 502
            async with asyncio.timeout(20):
                while {one.pool: one.state for one in (await desk.gateway.status()).endpoints}["s"] in (
                    "ready",
                    "busy",
                ):
                    await asyncio.sleep(0.01)
            tasks.append(desk.send("dead"))
            await desk.wait_waiting(2)
            desk.serve(3)
            answers = await asyncio.gather(*tasks)
            assert [answer.status for answer in answers] == [200, 200, 200]
            marks = [answer.headers.get("x-headrace-degraded") for answer in answers]
            assert marks == [None, "output_tokens=7", "output_tokens=7"]
            await desk.gateway.wait_idle()


async def test_a_reload_keeps_those_who_wait(tmp_path: Path) -> None:
    """A plan with more places starts those who wait at once; none is lost."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        tasks = [desk.send("first")]
        await desk.wait_seen(1)
        tasks.append(desk.send("second"))
        await desk.wait_waiting(1)
        declaration = declare({"p": remote_pool(desk.engine.url, queue={"sequences": 2})})
        assert (await desk.gateway.configure(declaration)).ok
        await desk.wait_seen(2)
        desk.serve(2)
        assert [(await task).status for task in tasks] == [200, 200]


async def test_without_a_known_bound_nothing_waits(tmp_path: Path) -> None:
    """Where neither the declaration nor the engine says how much it can do, every request is sent at once."""
    async with a_desk(tmp_path, {}) as desk:
        tasks = [desk.send(str(number)) for number in range(20)]
        await desk.wait_seen(20)
        desk.serve(20)
        assert all(answer.status == 200 for answer in await asyncio.gather(*tasks))


async def test_a_conversation_is_raised_with_its_latest_request(tmp_path: Path) -> None:
    """An offline request that an interactive one of the same conversation waits on goes before other standard work."""
    async with a_desk(tmp_path, {"sequences": 1}) as desk:
        tasks = [desk.send("first", x_headrace_class="interactive")]
        await desk.wait_seen(1)
        sent = (
            ("offline", {"x_headrace_class": "offline", "x_headrace_conversation": "c1"}),
            ("standard", {}),
            ("interactive", {"x_headrace_class": "interactive", "x_headrace_conversation": "c1"}),
        )
        for number, (name, headers) in enumerate(sent, start=1):
            tasks.append(desk.send(name, **headers))
            async with asyncio.timeout(BOUND_S):
                while (await desk.gateway.queues())[0].waiting != number:
                    await asyncio.sleep(0.01)
        desk.serve(4)
        await asyncio.gather(*tasks)
        assert desk.seen == ["first", "offline", "interactive", "standard"]


async def test_several_workers_share_the_places_of_an_engine(tmp_path: Path) -> None:
    """Two workers of one gateway, each flooded, together send an engine no more than its places, and lose nothing."""
    async with a_desk(tmp_path / "one", {"sequences": 4}) as desk:
        async with RunningGateway(tmp_path / "two", desk.gateway.declaration) as other:
            for worker in (desk.gateway, other):
                plan = compile_gateway_plan(worker.declaration, addresses_of(worker.declaration), revision=2)
                assert (await worker.configure_plan(msgspec.structs.replace(plan, workers=2))).ok
                await worker.wait_ready()
            tasks = [desk.send(str(number)) for number in range(6)]
            body = chat("script:wait x")
            tasks += [asyncio.ensure_future(ask(other.port, post(body, other.key))) for _ in range(6)]
            for worker in (desk.gateway, other):
                async with asyncio.timeout(BOUND_S):
                    while (await worker.queues())[0].waiting != 4:
                        await asyncio.sleep(0.01)
            assert len(desk.engine.seen) == 4
            desk.serve(12)
            assert [(await task).status for task in tasks] == [200] * 12
