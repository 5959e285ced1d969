"""Callers that read one byte a second and connections that do nothing: neither is felt by anybody else."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import pytest
from tests.harness.raw_client import RawClient, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed

IDLE, SLOW = 500, 5
ASKED = 150
"""Requests behind each median."""
FACTOR = 4.0
"""What a caller may at most notice: 500 connections that took part in every turn of the loop would cost far more."""
ROUNDS = 4
"""A machine that is busy with something else just then is measured again."""
GROWTH_BYTES = 24 * 1024 * 1024
"""Bound for all of them together; an unbounded buffer would hold 32 MB a slow reader."""


async def flood(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """Stream as fast as the gateway takes it, 32 MB in all."""
    writer.write(STREAM_HEAD)
    event = framed(chunk_event("x" * 4000))
    for _ in range(8000):
        writer.write(event)
        await writer.drain()


async def read_slowly(port: int, key: str) -> None:
    """Ask for the flood and take one byte of it a second, from as small a window as the kernel gives."""
    loop = asyncio.get_running_loop()
    with socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.setblocking(False)
        await loop.sock_connect(caller, ("127.0.0.1", port))
        await loop.sock_sendall(caller, post(chat("script:flood", stream=True), key))
        while await loop.sock_recv(caller, 1):
            await asyncio.sleep(1)


@asynccontextmanager
async def neighbours(gateway: RunningGateway, engine: ScriptedEngine) -> AsyncIterator[None]:
    """The slow and the idle, connected and known to the gateway."""
    idle = [RawClient(gateway.port) for _ in range(IDLE)]
    for client in idle:
        await client.__aenter__()
    slow = [asyncio.ensure_future(read_slowly(gateway.port, gateway.key)) for _ in range(SLOW)]
    async with asyncio.timeout(30):
        while engine.open_requests < SLOW or (await gateway.status()).connections < IDLE + SLOW:
            await asyncio.sleep(0.02)
    yield
    assert not any(task.done() for task in slow), "still reading"
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    for client in idle:
        await client.__aexit__()
    async with asyncio.timeout(30):
        while (await gateway.status()).connections:
            await asyncio.sleep(0.02)


async def latency_s(gateway: RunningGateway) -> float:
    """Median over requests of one caller, one after the other, over long enough that the slow ones read too."""
    taken_s: list[float] = []
    async with RawClient(gateway.port) as client:
        for _ in range(ASKED):
            began_mono_s = time.monotonic()
            await client.send(post(chat(), gateway.key))
            assert (await client.answer()).status == 200
            taken_s.append(time.monotonic() - began_mono_s)
            await asyncio.sleep(0.01)
    return median(taken_s)


def rss_bytes(gateway: RunningGateway) -> int:
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


async def test_slow_readers_and_idle_connections_are_not_felt(tmp_path: Path, engine: ScriptedEngine) -> None:
    """With 500 idle connections and five readers at 1 byte/s, another caller waits as without; memory is bounded."""
    engine.scripts = {"flood": flood}
    limits = {"slow_reader_timeout_s": 60.0, "idle_timeout_s": 120.0}
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url)}, gateway={"limits": limits})) as gateway:
        await gateway.wait_ready()
        ratios: list[float] = []
        await latency_s(gateway)  # warm
        for _ in range(ROUNDS):
            before_bytes = rss_bytes(gateway)
            alone_s = await latency_s(gateway)
            async with neighbours(gateway, engine):
                among_s = await latency_s(gateway)
                assert rss_bytes(gateway) - before_bytes < GROWTH_BYTES
            ratios.append(among_s / alone_s)
            if ratios[-1] < FACTOR:
                return
        pytest.fail(f"a caller among slow neighbours waited {min(ratios):.1f} times as long as alone")
