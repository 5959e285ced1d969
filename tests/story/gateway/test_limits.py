"""Each limit at 0, 1, the limit and one more, with idle and busy neighbours."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.polling import until
from tests.harness.raw_client import RawAnswer, RawClient, ask, chat, get, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import DONE, STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed, whole


async def hold(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """Answer when the test says so: when `engine.scripts` has lost its entry."""
    while "hold" in engine.scripts:
        await asyncio.sleep(0.01)
    writer.write(whole(200, b'{"id":"x","object":"chat.completion","choices":[]}'))
    await writer.drain()


async def flood(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """Stream as fast as the gateway takes it, 32 MB in all."""
    writer.write(STREAM_HEAD)
    event = framed(chunk_event("x" * 4000))
    for _ in range(8000):
        writer.write(event)
        await writer.drain()
    writer.write(framed(chunk_event(finish="stop") + DONE) + b"0\r\n\r\n")
    await writer.drain()


@asynccontextmanager
async def limited(folder: Path, engine: ScriptedEngine, **gateway: Any) -> AsyncIterator[RunningGateway]:
    tenants = gateway.pop("tenants", {"default": {}})
    keys = gateway.pop("keys", ())
    pool = remote_pool(engine.url, **gateway.pop("pool", {}))
    async with RunningGateway(folder, declare({"p": pool}, gateway=gateway, tenants=tenants), keys) as running:
        await running.wait_ready()
        yield running


def body_of(size: int) -> bytes:
    """A valid chat body of exactly so many bytes."""
    frame = len(json.dumps(chat("")).encode())
    return json.dumps(chat("x" * (size - frame))).encode()


@pytest.mark.parametrize(("size", "status"), [(200, 200), (2047, 200), (2048, 200), (2049, 413)])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_body_bytes(tmp_path: Path, engine: ScriptedEngine, size: int, status: int, is_chunked: bool) -> None:
    """A body up to the limit passes, one byte more is refused, announced or not."""
    async with limited(tmp_path, engine, limits={"body_bytes": 2048}) as gateway:
        body = body_of(size)
        request = post(body, gateway.key)
        if is_chunked:
            head = request.partition(b"\r\n\r\n")[0].replace(
                b"content-length: %d" % size, b"transfer-encoding: chunked"
            )
            request = head + b"\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
        answer = await ask(gateway.port, request)
        assert answer.status == status
        assert len(engine.seen) == (status == 200)


async def test_a_body_announced_too_large_is_refused_before_it_is_sent(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A caller with Expect, or a gigabyte to send, hears it at once."""
    async with limited(tmp_path, engine, limits={"body_bytes": 2048}) as gateway:
        head = post(b"", gateway.key, content_length="999999999").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        async with RawClient(gateway.port) as client:
            await client.send(head)
            answer = await client.answer()
        assert (answer.status, answer.code, answer.headers["connection"]) == (413, "body_too_large", "close")


@pytest.mark.parametrize(("extra", "status"), [(0, 200), (1, 431)])
async def test_header_bytes(tmp_path: Path, engine: ScriptedEngine, extra: int, status: int) -> None:
    """The head is measured as path, names, values and four bytes a header."""
    async with limited(tmp_path, engine, limits={"header_bytes": 1024}) as gateway:
        used = len("/health") + sum(len(name) + len(value) + 4 for name, value in (("host", "test"), ("pad", "")))
        answer = await ask(gateway.port, get("/health", pad="y" * (1024 - used + extra)))
        assert answer.status == status


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_concurrent_requests_of_a_tenant(tmp_path: Path, engine: ScriptedEngine, limit: int) -> None:
    """Exactly so many at once, however many come in parallel; what ends makes room; others are not touched."""
    engine.scripts = {"hold": hold}
    other_key, other = new_key("other")
    tenants = {"default": {"limits": {"concurrent_requests": limit}}, "other": {}}
    async with limited(tmp_path, engine, tenants=tenants, keys=(other,)) as gateway:
        request = post(chat("script:hold"), gateway.key)
        asked = [asyncio.ensure_future(ask(gateway.port, request)) for _ in range(20)]
        await until(lambda: _is(lambda: sum(task.done() for task in asked) == 20 - limit))
        await until(lambda: _is(lambda: len(engine.seen) >= limit))  # those that passed may still be on their way
        assert len(engine.seen) == limit
        refused = [task.result() for task in asked if task.done()]
        assert {(answer.status, answer.code) for answer in refused} == {(429, "rate_limited")}
        assert "default" in refused[0].json["error"]["message"]
        assert (await ask(gateway.port, post(chat(), other_key))).status == 200
        engine.scripts = {}
        assert sum(answer.status == 200 for answer in await asyncio.gather(*asked)) == limit
        assert (await gateway.wait_idle()).in_flight == 0
        assert (await ask(gateway.port, post(chat(), gateway.key))).status == (200 if limit else 429)


@pytest.mark.parametrize("limit", [0, 1, 10])
async def test_requests_per_min_of_a_tenant(tmp_path: Path, engine: ScriptedEngine, limit: int) -> None:
    """200 parallel callers get one minute's worth and not one more; the rest hear when to come back."""
    tenants = {"default": {"limits": {"requests_per_min": limit}}}
    async with limited(tmp_path, engine, tenants=tenants) as gateway:
        began_mono_s = time.monotonic()
        answers = await asyncio.gather(*(ask(gateway.port, post(chat(), gateway.key)) for _ in range(200)))
        passed = sum(answer.status == 200 for answer in answers)
        # The bucket refills while the test runs: at 10 a minute, one more each 6 s.
        refilled = int(limit * (time.monotonic() - began_mono_s) / 60) + (limit > 0)
        assert limit <= passed <= limit + refilled
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.code == "rate_limited"
        assert (refused.headers.get("x-should-retry") == "false") == (limit == 0)


@pytest.mark.parametrize("limit", [1, 2])
async def test_in_flight_of_the_gateway(tmp_path: Path, engine: ScriptedEngine, limit: int) -> None:
    """Over it, a request is refused as the platform's fault, with a time to come back."""
    engine.scripts = {"hold": hold}
    async with limited(tmp_path, engine, limits={"in_flight": limit}) as gateway:
        request = post(chat("script:hold"), gateway.key)
        asked = [asyncio.ensure_future(ask(gateway.port, request)) for _ in range(limit + 1)]
        await until(lambda: _is(lambda: any(task.done() for task in asked)))
        refused = next(task.result() for task in asked if task.done())
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "saturated", "1")
        assert (await ask(gateway.port, get("/health"))).status == 200
        engine.scripts = {}
        assert sorted([(await task).status for task in asked]) == [200] * limit + [503]


def in_chunks(body: bytes, key: str, *sizes: int) -> bytes:
    """A request whose body comes in chunks of these sizes, over and over."""
    pieces: list[bytes] = []
    place = 0
    while place < len(body):
        for size in sizes:
            pieces.append(body[place : place + size])
            place += size
    length = b"content-length: %d" % len(body)
    head = post(body, key)[: -len(body)].replace(length, b"transfer-encoding: chunked")
    return head + b"".join([framed(piece) for piece in pieces if piece]) + b"0\r\n\r\n"


@pytest.mark.parametrize("sizes", [(2,), (2000, 3), (3, 2000, 1, 1, 5000)])
async def test_small_chunks_arrive_whole(tmp_path: Path, engine: ScriptedEngine, sizes: tuple[int, ...]) -> None:
    """However a body is cut into chunks, the engine gets it as it was."""
    body = body_of(100_000)
    async with limited(tmp_path, engine) as gateway:
        assert (await ask(gateway.port, in_chunks(body, gateway.key, *sizes))).status == 200
    assert engine.seen[-1].body == body


@pytest.mark.parametrize(("size", "chunk", "status"), [(120_000, 2, 200), (140_000, 2, 400), (6_000_000, 80, 200)])
async def test_bodies_of_tiny_chunks(
    tmp_path: Path, engine: ScriptedEngine, size: int, chunk: int, status: int
) -> None:
    """A long body in chunks of a few bytes would keep everybody waiting: it is refused, and says what to do."""
    async with limited(tmp_path, engine) as gateway:
        answer = await ask(gateway.port, in_chunks(body_of(size), gateway.key, chunk))
        assert answer.status == status
        assert status == 200 or "send larger chunks" in answer.json["error"]["message"]


@pytest.mark.parametrize("limit", [1, 3])
async def test_connections(tmp_path: Path, engine: ScriptedEngine, limit: int) -> None:
    """Idle ones count; one too many is closed at once, and room comes back when one goes."""
    async with limited(tmp_path, engine, limits={"connections": limit}) as gateway:
        idle = [RawClient(gateway.port) for _ in range(limit)]
        for client in idle:
            await client.__aenter__()
        await until(lambda: _connections(gateway, limit))
        async with RawClient(gateway.port) as late:
            assert await late.is_closed()
        await idle[0].__aexit__()
        await until(lambda: _connections(gateway, limit - 1))
        assert (await ask(gateway.port, get("/health"))).status == 200
        for client in idle[1:]:
            await client.__aexit__()


async def test_idle_connections_are_closed_in_time(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A connection without a request ends; one whose request is in work does not."""
    engine.scripts = {"hold": hold}
    async with limited(tmp_path, engine, limits={"idle_timeout_s": 0.3}) as gateway:
        busy = asyncio.ensure_future(ask(gateway.port, post(chat("script:hold"), gateway.key)))
        async with RawClient(gateway.port) as client:
            assert await client.is_closed()
        engine.scripts = {}
        assert (await busy).status == 200


@pytest.mark.parametrize("part", ["headers", "body"])
async def test_a_request_that_does_not_come_whole_is_timed_out(
    tmp_path: Path, engine: ScriptedEngine, part: str
) -> None:
    """A slow sender holds a connection for its time and no longer."""
    limits = {"header_timeout_s": 0.3, "body_timeout_s": 0.3}
    async with limited(tmp_path, engine, limits=limits) as gateway:
        request = post(chat(), gateway.key)
        async with RawClient(gateway.port) as client:
            await client.send(request[:40] if part == "headers" else request[:-5])
            answer = await client.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        assert part in answer.json["error"]["message"]


async def test_a_slow_reader_is_bounded_and_hurts_nobody(tmp_path: Path, engine: ScriptedEngine) -> None:
    """32 MB for a caller that reads nothing stay at the engine; others are served meanwhile; then it is cut off."""
    engine.scripts = {"flood": flood}
    async with limited(tmp_path, engine, limits={"slow_reader_timeout_s": 1.5}) as gateway:
        idle = [RawClient(gateway.port) for _ in range(200)]
        for client in idle:
            await client.__aenter__()
        before = _rss_bytes(gateway)
        slow = [RawClient(gateway.port) for _ in range(5)]
        for client in slow:
            await client.__aenter__()
            client.writer.transport.pause_reading()
            await client.send(post(chat("script:flood", stream=True), gateway.key))
        await until(lambda: _is(lambda: engine.open_requests == 5))
        answers = [await ask(gateway.port, post(chat(), gateway.key)) for _ in range(20)]
        assert [answer.status for answer in answers] == [200] * 20
        assert _rss_bytes(gateway) - before < 24 * 1024 * 1024
        await until(lambda: _is(lambda: engine.open_requests == 0))
        for client in slow + idle:
            await client.__aexit__()
        await gateway.wait_idle()


async def test_a_reader_that_catches_up_gets_everything(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Back-pressure pauses the engine's side and resumes it; no byte is lost."""
    engine.scripts = {"flood": flood}
    async with limited(tmp_path, engine) as gateway:
        async with RawClient(gateway.port) as client:
            await client.send(post(chat("script:flood", stream=True), gateway.key))
            await client.head()
            size, count = 0, 0
            async for chunk in client.chunks():
                size += len(chunk)
                count += 1
                if count % 500 == 0:
                    await asyncio.sleep(0.01)
        assert size == 8000 * len(chunk_event("x" * 4000)) + len(chunk_event(finish="stop") + DONE)


@pytest.mark.parametrize(("size", "is_whole"), [(4097, True), (4098, False)])
async def test_event_bytes(tmp_path: Path, engine: ScriptedEngine, size: int, is_whole: bool) -> None:
    """An event that never ends is broken off at the limit, in-band."""

    async def big_event(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        event = chunk_event("y" * (size - len(chunk_event(""))))
        writer.write(STREAM_HEAD + framed(chunk_event("a")) + framed(event[:-1]))
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.write(framed(event[-1:]) + framed(chunk_event(finish="stop")) + framed(DONE) + b"0\r\n\r\n")
        await writer.drain()

    engine.scripts = {"big": big_event}
    # The gateway holds all of the event but its last byte.
    async with limited(tmp_path, engine, limits={"event_bytes": 4096}) as gateway:
        answer = await ask(gateway.port, post(chat("script:big", stream=True), gateway.key))
        assert answer.body.endswith(DONE) == is_whole
        assert (b'"code":"stream_broken"' in answer.body) != is_whole


@pytest.mark.parametrize(("size", "status"), [(4096, 200), (4097, 502)])
async def test_response_bytes(tmp_path: Path, engine: ScriptedEngine, size: int, status: int) -> None:
    """A whole answer is held in memory, so it has a bound."""

    async def big(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(200, b'{"a":"' + b"x" * (size - 8) + b'"}'))
        await writer.drain()

    engine.scripts = {"big": big}
    async with limited(tmp_path, engine, limits={"response_bytes": 4096}, retry={"max_attempts": 1}) as gateway:
        assert (await ask(gateway.port, post(chat("script:big"), gateway.key))).status == status


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_max_attempts(tmp_path: Path, engine: ScriptedEngine, attempts: int) -> None:
    """So many attempts and not one more."""

    async def fail(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(500, b"{}"))
        await writer.drain()

    engine.scripts = {"fail": fail}
    retry = {"max_attempts": attempts, "backoff_s": 0.01}
    async with limited(tmp_path, engine, retry=retry) as gateway:
        assert (await ask(gateway.port, post(chat("script:fail"), gateway.key))).status == 502
        assert len(engine.seen) == attempts


async def test_the_retry_budget_protects_a_failing_pool(tmp_path: Path, engine: ScriptedEngine) -> None:
    """With a budget of two, twenty failing requests cause two more attempts, not forty."""

    async def fail(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(500, b"{}"))
        await writer.drain()

    engine.scripts = {"fail": fail}
    retry = {"max_attempts": 3, "backoff_s": 0, "budget_ratio": 0, "budget_minimum": 2}
    pool = {"probe": {"eject_after": 100}}
    async with limited(tmp_path, engine, retry=retry, pool=pool) as gateway:
        for _ in range(20):
            await ask(gateway.port, post(chat("script:fail"), gateway.key))
        assert len(engine.seen) == 22
        assert await gateway.metric("headrace_retry_budget_refusals_total") == 20.0 - 1


async def test_too_many_pipelined_requests_end_the_connection(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A client that only sends gets its answers up to the bound, then an error, then the end."""
    engine.scripts = {"hold": hold}
    async with limited(tmp_path, engine) as gateway, RawClient(gateway.port) as client:
        await client.send(post(chat("script:hold"), gateway.key) + get("/health") * 65)
        await until(lambda: _is(lambda: len(engine.seen) == 1))
        engine.scripts = {}
        answers: list[RawAnswer] = [await client.answer() for _ in range(66)]
        assert [answer.status for answer in answers] == [200] * 65 + [400]
        assert await client.is_closed()


async def test_bytes_that_wait_on_a_connection(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Behind a request in work as many bytes may wait as one body may have; the engine hears when the caller leaves."""
    engine.scripts = {"hold": hold}
    async with limited(tmp_path, engine, limits={"body_bytes": 4096}) as gateway:
        for sizes, statuses in (((4096,), [200, 200]), ((2000, 2096), [200] * 3), ((2000, 2097), [200, 200, 400])):
            engine.scripts = {"hold": hold}
            async with RawClient(gateway.port) as client:
                seen = len(engine.seen)
                await client.send(post(chat("script:hold"), gateway.key))
                await until(lambda: _is(lambda: len(engine.seen) == seen + 1))  # noqa: B023
                await client.send(b"".join(post(body_of(size), gateway.key) for size in sizes))
                engine.scripts = {}
                assert [(await client.answer()).status for _ in statuses] == statuses
                assert statuses[-1] == 200 or await client.is_closed()
        engine.scripts = {"hold": hold}
        async with RawClient(gateway.port) as client:
            seen = len(engine.seen)
            await client.send(post(chat("script:hold"), gateway.key))
            await until(lambda: _is(lambda: len(engine.seen) == seen + 1))
            await client.send(post(body_of(4096), gateway.key) * 30)
        await until(lambda: _is(lambda: engine.seen[seen].was_cut))


async def _is(condition: Callable[[], bool]) -> bool:
    return condition()


async def _connections(gateway: RunningGateway, count: int) -> bool:
    return (await gateway.status()).connections == count


def _rss_bytes(gateway: RunningGateway) -> int:
    assert gateway.process is not None
    pages = Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize("limit", ["body_fields", "body_values"])
async def test_one_odd_body_costs_nobody_else_anything(tmp_path: Path, engine: ScriptedEngine, limit: str) -> None:
    """Half a million fields or messages are refused by the limit's name; the connection and the neighbours go on."""
    async with limited(tmp_path, engine) as gateway:
        count = 300 if limit == "body_fields" else 500_000
        fields = ",".join(f'"f{number}":{{}}' for number in range(count))
        odd = f'{{"model":"m","messages":[],{fields}}}'.encode()
        async with RawClient(gateway.port) as client:
            await client.send(post(odd, gateway.key))
            refused = await client.answer()
            assert (refused.status, refused.code) == (400, "invalid_request")
            assert f"gateway.limits.{limit}" in refused.body.decode()
            await client.send(post(chat("hi"), gateway.key))
            assert (await client.answer()).status == 200
