"""What a caller gets when an engine fails: another engine, or an error that says so; never a cut that looks whole."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.harness.raw_client import RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import (
    DONE,
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    chunk_event,
    framed,
    whole,
)


async def refuse_500(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(500, b'{"error":{"message":"boom","type":"InternalServerError","code":500}}'))
    await writer.drain()


async def cut_before_head(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def cut_in_stream(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(chunk_event("hel")) + framed(chunk_event("lo")) + framed(b'data: {"cho'))
    await writer.drain()
    writer.close()


async def end_without_done(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(chunk_event("hello")) + b"0\r\n\r\n")
    await writer.drain()


async def error_then_done(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """As vLLM does when it is stopped."""
    error = b'data: {"error":{"message":"engine dead","type":"InternalServerError","code":500}}\n\n'
    writer.write(STREAM_HEAD + framed(chunk_event("hello")) + framed(error) + framed(DONE) + b"0\r\n\r\n")
    await writer.drain()


async def stall(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM_HEAD + framed(chunk_event("hello")))
    await writer.drain()
    await asyncio.sleep(60)


async def silent(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def not_json(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    writer.write(whole(200, b"<html>"))
    await writer.drain()


SCRIPTS = {
    "500": refuse_500,
    "cut-head": cut_before_head,
    "cut-stream": cut_in_stream,
    "no-done": end_without_done,
    "error-done": error_then_done,
    "stall": stall,
    "silent": silent,
    "not-json": not_json,
}


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("cut-stream", "stream_broken"),
        ("no-done", "stream_broken"),
        ("error-done", "stream_broken"),
        ("stall", "stream_stalled"),
    ],
)
async def test_a_stream_cut_after_its_first_event_ends_in_band(
    gateway: RunningGateway, engine: ScriptedEngine, script: str, code: str
) -> None:
    """The caller sees whole events, then an error event, and never the mark of success."""
    engine.scripts = SCRIPTS
    answer = await ask(gateway.port, post(chat(f"script:{script}", stream=True), gateway.key))
    events = answer.body.split(b"\n\n")
    assert answer.status == 200
    assert json.loads(events[-2].removeprefix(b"data: "))["error"]["code"] == code
    assert b"[DONE]" not in answer.body
    assert all(json.loads(event.removeprefix(b"data: ")) for event in events[:-1])
    status = await gateway.wait_idle()
    assert status.requests == 1


async def fall_silent_and_stop_listening(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    engine.stop_listening()
    await stall(engine, request, writer)


async def test_a_stream_of_an_engine_that_is_gone_does_not_wait_for_the_stall_bound(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """vLLM can leave a stream open and silent when it ends: once nobody listens there, silence is soon the end."""
    engine.scripts = {"gone": fall_silent_and_stop_listening}
    pool = remote_pool(engine.url, stall_timeout_s=600.0)
    async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
        await gateway.wait_ready()
        answer = await ask(gateway.port, post(chat("script:gone", stream=True), gateway.key))
        assert answer.status == 200
        assert b"stream_stalled" in answer.body
        assert b"[DONE]" not in answer.body


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ("500", 502, "engine_refused"),
        ("cut-head", 502, "stream_broken"),
        ("silent", 504, "first_token_timeout"),
        ("not-json", 502, "stream_broken"),
    ],
)
async def test_an_engine_that_fails_every_time_gives_one_clear_error(
    gateway: RunningGateway, engine: ScriptedEngine, script: str, status: int, code: str
) -> None:
    """After its attempts the request ends with one answer, of the one table."""
    engine.scripts = SCRIPTS
    answer = await ask(gateway.port, post(chat(f"script:{script}"), gateway.key))
    assert (answer.status, answer.code) == (status, code)
    assert (await gateway.wait_idle()).requests == 1


@pytest.mark.parametrize("script", ["500", "cut-head", "not-json"])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_another_replica_answers_before_the_first_byte(tmp_path: Path, script: str, is_stream: bool) -> None:
    """A caller notices nothing of a replica that fails before it has sent anything."""
    async with ScriptedEngine(scripts=SCRIPTS) as bad, ScriptedEngine() as good:
        declaration = declare({"p": remote_pool(bad.url, good.url, probe={"eject_after": 100})})
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready(endpoints=2)
            for _ in range(6):
                body = chat(f"script:{script}", stream=is_stream)
                answer = await ask(gateway.port, post(body, gateway.key))
                assert answer.status == 200
                assert (b"friend" in answer.body) and (not is_stream or answer.body.endswith(DONE))
            assert len(bad.seen) >= 2
            assert (await gateway.wait_idle()).requests == 6


async def test_a_refused_connection_takes_an_endpoint_out_and_a_probe_brings_it_back(tmp_path: Path) -> None:
    """A dead engine is not asked again until it answers probes; back alive, it is used."""
    async with ScriptedEngine() as first, ScriptedEngine() as second:
        async with RunningGateway(tmp_path, declare({"p": remote_pool(first.url, second.url)})) as gateway:
            await gateway.wait_ready(endpoints=2)
            await first.stop()
            answers = [await ask(gateway.port, post(chat(), gateway.key)) for _ in range(10)]
            assert [answer.status for answer in answers] == [200] * 10
            await first.start()
            await gateway.wait_ready(endpoints=2)
            before = len(first.seen)
            for _ in range(4):
                await ask(gateway.port, post(chat(), gateway.key))
            assert len(first.seen) > before


async def test_failures_in_a_row_eject_an_endpoint_for_a_while(tmp_path: Path) -> None:
    """An endpoint that answers probes but fails requests is left out, then tried again."""
    async with ScriptedEngine(scripts=SCRIPTS) as bad, ScriptedEngine() as good:
        pool = remote_pool(bad.url, good.url, probe={"eject_after": 2, "eject_s": 0.5})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            for _ in range(8):
                assert (await ask(gateway.port, post(chat("script:500"), gateway.key))).status == 200
            assert len(bad.seen) <= 3
            state = next(e for e in (await gateway.status()).endpoints if e.endpoint.endswith(str(bad.port)))
            assert (state.state, "2 failures in a row" in state.reason) == ("ejected", True)
            bad.scripts = {}
            await gateway.wait_ready(endpoints=2)


async def test_no_endpoint_gives_503_with_what_they_are_doing(tmp_path: Path) -> None:
    """With nothing to answer, the caller is told at once, and how long to wait."""
    async with ScriptedEngine() as engine:
        pass
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url)})) as gateway:
        answer = await ask(gateway.port, post(chat(), gateway.key))
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "no_ready_endpoint", "5")
        assert "1 endpoints, 0 ready" in answer.json["error"]["message"]


async def test_a_pooled_connection_that_went_stale_costs_the_caller_nothing(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    """An engine may close an idle connection at any time; the request goes out again on a new one."""
    await ask(gateway.port, post(chat(), gateway.key))
    for writer in list(engine._writers):
        writer.transport.abort()
    answers = await asyncio.gather(*(ask(gateway.port, post(chat(), gateway.key)) for _ in range(3)))
    assert [answer.status for answer in answers] == [200] * 3
    assert await gateway.metric("headrace_retries_total") == 0.0


async def test_the_callers_disconnect_reaches_the_engine(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """When the caller goes, the engine stops working for it: waiting for the head, and in mid-stream."""
    engine.scripts = SCRIPTS
    for script in ("silent", "stall"):
        async with RawClient(gateway.port) as client:
            await client.send(post(chat(f"script:{script}", stream=True), gateway.key))
            async with asyncio.timeout(30):
                while not engine.open_requests:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            while engine.open_requests:
                await asyncio.sleep(0.01)
        assert engine.seen[-1].was_cut
    await gateway.wait_idle()
    assert await gateway.metric('headrace_requests_total{code="caller_disconnected"') == 2.0


async def test_the_callers_deadline_ends_the_request(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """`x-request-timeout` bounds the whole request, whatever the pool allows."""
    engine.scripts = SCRIPTS
    answer = await ask(gateway.port, post(chat("script:silent"), gateway.key, x_request_timeout="0.3"))
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    async with asyncio.timeout(30):
        while not engine.seen[0].was_cut:
            await asyncio.sleep(0.01)


async def test_a_heartbeat_keeps_a_silent_stream_alive(tmp_path: Path) -> None:
    """Proxies with idle time-outs see bytes while the engine thinks; failover still works after them."""
    async with ScriptedEngine(scripts=SCRIPTS) as engine:
        pool = remote_pool(engine.url, first_token_timeout_s=3.0)
        declaration = declare({"p": pool}, gateway={"heartbeat_s": 0.3, "retry": {"max_attempts": 1}})
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready()
            answer = await ask(gateway.port, post(chat("script:silent", stream=True), gateway.key))
            assert answer.body.count(b": heartbeat\n\n") >= 2
            assert json.loads(answer.body.split(b"\n\n")[-2][6:])["error"]["code"] == "first_token_timeout"


async def test_a_hung_engine_is_taken_out_by_probes_and_blocks_nobody(tmp_path: Path) -> None:
    """An engine that accepts connections and says nothing leaves rotation within a few probes."""

    async def hang() -> bytes:
        await asyncio.sleep(60)
        return b""

    async with ScriptedEngine() as hung, ScriptedEngine() as good:
        pool = remote_pool(hung.url, good.url, probe={"interval_s": 0.1, "timeout_s": 0.2})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            hung.probe = hang
            async with asyncio.timeout(30):
                while (await gateway.status()).endpoints[0].state != "not-ready":
                    await asyncio.sleep(0.02)
            assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200
            assert len(hung.seen) == 0


async def test_a_late_probe_under_load_evicts_nobody(tmp_path: Path) -> None:
    """While requests make progress, a probe that times out means busy, not dead (PAINS 11)."""

    async def hang() -> bytes:
        await asyncio.sleep(60)
        return b""

    async def slow_stream(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while "slow" in engine.scripts:
            writer.write(framed(chunk_event("x")))
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(framed(chunk_event(finish="stop") + DONE) + b"0\r\n\r\n")
        await writer.drain()

    async with ScriptedEngine(scripts={"slow": slow_stream}) as engine:
        pool = remote_pool(engine.url, probe={"interval_s": 0.2, "timeout_s": 0.5})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready()
            running = asyncio.ensure_future(ask(gateway.port, post(chat("script:slow", stream=True), gateway.key)))
            engine.probe = hang
            async with asyncio.timeout(30):
                while (await gateway.status()).endpoints[0].state != "busy":
                    await asyncio.sleep(0.02)
            assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200
            engine.scripts = {}
            assert (await running).body.endswith(DONE)


async def test_one_poisonous_request_does_not_take_out_an_engine(
    gateway: RunningGateway, engine: ScriptedEngine
) -> None:
    """However often a request is tried, it counts against an engine once."""
    engine.scripts = SCRIPTS
    assert (await ask(gateway.port, post(chat("script:500"), gateway.key))).status == 502
    assert len(engine.seen) == 3
    assert (await gateway.status()).endpoints[0].state == "ready"


async def test_the_last_engine_is_tried_even_when_ejected(gateway: RunningGateway, engine: ScriptedEngine) -> None:
    """A refusal would be certain; an engine that answers probes may have recovered."""
    engine.scripts = SCRIPTS
    for _ in range(3):
        await ask(gateway.port, post(chat("script:500"), gateway.key))
    assert (await gateway.status()).endpoints[0].state == "ejected"
    assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200
