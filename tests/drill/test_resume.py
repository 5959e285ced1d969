"""Real gateway, simulated engines in processes of their own: killed and stopped under open streams.

A simulated engine's text is a function of the prompt, so that a lost, doubled or swapped token shows.
`HEADRACE_DRILL_KILLS` and `HEADRACE_DRILL_STREAMS` make it long: `make drill-resume`.
"""

import asyncio
import os
import signal
import statistics
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.harness.polling import until
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import MODEL, SimulatedProcess
from tests.harness.told_stream import ToldStream

from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.text import expected_text

KILLS = int(os.environ.get("HEADRACE_DRILL_KILLS", "1"))
STREAMS = int(os.environ.get("HEADRACE_DRILL_STREAMS", "12"))
TOKENS = 150


class Fleet:
    """Two simulated replicas behind a gateway."""

    def __init__(self, engines: list[SimulatedProcess], gateway: RunningGateway) -> None:
        self.engines = engines
        self.gateway = gateway
        self.gaps_s: list[float] = []

    async def tell(self, count: int, **fields: Any) -> tuple[list[ToldStream], "asyncio.Task[list[ToldStream]]"]:
        """Begin streams; returns once each has said a few words."""
        streams = [
            ToldStream(
                {
                    "model": "m",
                    "messages": [{"role": "user", "content": f"Tell me about number {number}."}],
                    "temperature": 0,
                    "max_tokens": TOKENS,
                    "ignore_eos": True,
                    "stream_options": {"include_usage": True},
                    **fields,
                }
            )
            for number in range(count)
        ]
        port, key = self.gateway.port, self.gateway.key
        reading = asyncio.ensure_future(self._gather(streams, port, key))
        await until(lambda: reading.done() or all(stream.pieces > 3 for stream in streams))
        return streams, reading

    @staticmethod
    async def _gather(streams: list[ToldStream], port: int, key: str) -> list[ToldStream]:
        async with asyncio.timeout(120):
            return await asyncio.gather(*(stream.read(port, key) for stream in streams))

    async def check(self, streams: list[ToldStream]) -> None:
        """Every stream is one answer, whole and exact."""
        for stream in streams:
            assert stream.error is None, stream.error
            assert stream.is_whole
            assert stream.text == expected_text(MODEL, stream.body["messages"], TOKENS)
            assert stream.roles == len(stream.dates) == 1
            assert stream.reasons == ["length"]
            assert stream.usage is not None
            assert stream.usage["completion_tokens"] == TOKENS
            self.gaps_s.append(stream.longest_gap_s)
        assert len({next(iter(stream.identities))[0] for stream in streams}) == len(streams)
        status = await self.gateway.wait_idle()
        assert status.in_flight == 0

    async def busiest(self) -> SimulatedProcess:
        """The replica with most streams: routing may keep like requests together."""
        in_flight = {endpoint.endpoint: endpoint.in_flight for endpoint in (await self.gateway.status()).endpoints}
        return max(self.engines, key=lambda engine: in_flight[f"p/127.0.0.1:{engine.port}"])

    async def resumes(self, cause: str) -> float:
        return await self.gateway.metric(f'headrace_resumes_total{{cause="{cause}",model="m"}}') or 0.0


@pytest_asyncio.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Start a fleet of a dialect; ended with the test."""
    async with asyncio.timeout(600), asyncio.TaskGroup() as _:
        engines: list[SimulatedProcess] = []
        gateways: list[RunningGateway] = []

        async def start(dialect: DialectKind = DialectKind.VLLM, **pool_keys: Any) -> Fleet:
            engines.extend(SimulatedProcess(dialect, tmp_path, step_ms=10) for _ in range(2))
            await asyncio.gather(*(engine.__aenter__() for engine in engines))
            urls = [engine.url for engine in engines]
            pool = remote_pool(*urls, engine=engines[0].kind.value, served_model=MODEL, **pool_keys)
            declared = declare({"p": pool}, gateway={"resume": {"budget_minimum": 2}})
            gateway = RunningGateway(tmp_path, declared)
            gateways.append(gateway)
            await gateway.__aenter__()
            await gateway.wait_ready(endpoints=2)
            return Fleet(engines, gateway)

        try:
            yield start
        finally:
            for gateway in gateways:
                await gateway.__aexit__()
            for engine in engines:
                if engine.process is not None:
                    engine.process.send_signal(signal.SIGCONT)
                await engine.kill()


DIALECTS = [DialectKind.VLLM, DialectKind.LLAMACPP] + ([DialectKind.SGLANG] if KILLS > 1 else [])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_streams_outlive_a_killed_engine(begin: Callable[..., Any], dialect: DialectKind) -> None:
    """kill -9 of one replica of two: every stream ends whole, no token lost, doubled or out of order."""
    fleet: Fleet = await begin(dialect)
    for _ in range(KILLS):
        streams, reading = await fleet.tell(STREAMS)
        victim = await fleet.busiest()
        assert not reading.done()
        await victim.kill()
        await fleet.check(await reading)
        assert {stream.is_over for stream in streams} == {True}
        await victim.start()
        await victim.wait_ready()
        await fleet.gateway.wait_ready(endpoints=2)
    assert await fleet.resumes("died") >= KILLS
    if KILLS > 1:
        show(f"{dialect.value}: {KILLS} kills", fleet.gaps_s)


async def test_streams_outlive_a_stopped_engine(begin: Callable[..., Any]) -> None:
    """SIGSTOP of one replica: after the pool's stall bound its streams go on at the other."""
    fleet: Fleet = await begin(resume={"stall_s": 2.0})
    for _ in range(KILLS):
        _, reading = await fleet.tell(STREAMS)
        victim = await fleet.busiest()
        assert victim.process is not None
        victim.process.send_signal(signal.SIGSTOP)
        await fleet.check(await reading)
        victim.process.send_signal(signal.SIGCONT)
        await fleet.gateway.wait_ready(endpoints=2)
    assert await fleet.resumes("stalled") >= KILLS
    if KILLS > 1:
        show(f"{KILLS} stops", fleet.gaps_s)


def show(what: str, gaps_s: list[float]) -> None:
    """Figures of a long drill."""
    cuts = statistics.quantiles(gaps_s, n=100)
    sys.stdout.write(
        f"\n{what}: {len(gaps_s)} streams, 0 failed; longest gap of a stream p50 {cuts[49] * 1e3:.0f} ms, "
        f"p99 {cuts[98] * 1e3:.0f} ms, max {max(gaps_s) * 1e3:.0f} ms\n"
    )
