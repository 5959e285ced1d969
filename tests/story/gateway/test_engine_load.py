"""What engines say of their own load, and what the gateway makes of it: a simulated engine with few places."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.raw_client import RawAnswer, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine
from tests.harness.simulated_engine import MODEL, SimulatedProcess

from headrace.domain.queue_status import QueueStatus
from headrace.engines.simulated.config import DialectKind

BOUND_S = 40.0
WAITING = "vllm:num_requests_waiting"
RUNNING = "vllm:num_requests_running"


def page(running: int, waiting: int) -> bytes:
    return f"# TYPE {RUNNING} gauge\n{RUNNING} {running}\n# TYPE {WAITING} gauge\n{WAITING} {waiting}\n".encode()


class SilentPage(ScriptedEngine):
    """An engine whose page of metrics never comes."""

    async def _found(self, path: str) -> bytes:
        if path == "/metrics":
            await asyncio.sleep(3600)
        return await super()._found(path)


def send(gateway: RunningGateway, **fields: object) -> "asyncio.Task[RawAnswer]":
    return asyncio.ensure_future(ask(gateway.port, post(chat(**fields), gateway.key)))


async def until_queue(gateway: RunningGateway, is_so: Callable[[QueueStatus], bool]) -> QueueStatus:
    """Ask for the queue's status until it is as wanted."""
    async with asyncio.timeout(BOUND_S):
        while True:
            (status,) = await gateway.queues()
            if is_so(status):
                return status
            await asyncio.sleep(0.02)


async def test_an_engine_that_has_requests_waiting_is_sent_no_more(tmp_path: Path) -> None:
    """Nothing is declared of a full engine: once it shows that requests wait in it, further ones wait in the gateway,
    and all are answered.
    """
    async with SimulatedProcess(DialectKind.VLLM, tmp_path, "--max-sequences", "2", step_ms=20) as engine:
        pool = remote_pool(engine.url, engine="vllm", served_model=MODEL)
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready()
            tasks = [send(gateway, max_tokens=40) for _ in range(8)]
            status = await until_queue(gateway, lambda status: (status.endpoints[0].engine_waiting or 0) > 0)
            assert status.endpoints[0].is_measured_fresh
            status = await until_queue(gateway, lambda status: status.endpoints[0].places is not None)
            assert status.endpoints[0].places == 3  # the two that run, and one more so that it never runs dry
            tasks += [send(gateway, max_tokens=4) for _ in range(8)]
            status = await until_queue(gateway, lambda status: status.waiting > 0)
            assert "are taken" in status.reason
            answers = await asyncio.gather(*tasks)
            assert [answer.status for answer in answers] == [200] * 16
            await gateway.wait_idle()


async def test_a_flood_on_a_running_engine_leaves_a_quiet_tenant_alone(tmp_path: Path) -> None:
    """A short run in real time: while one tenant has a hundred requests waiting, another's come and go one by one."""
    noisy, first = new_key("noisy")
    quiet, second = new_key("quiet")
    async with SimulatedProcess(DialectKind.VLLM, tmp_path, "--max-sequences", "16", step_ms=5) as engine:
        pool = remote_pool(engine.url, engine="vllm", served_model=MODEL, batching={"max_sequences": 16})
        declaration = declare({"p": pool}, tenants={"default": {}, "noisy": {}, "quiet": {}})
        async with RunningGateway(tmp_path, declaration, (first, second)) as gateway:
            await gateway.wait_ready()

            async def one(key: str, tokens: int) -> int:
                return (await ask(gateway.port, post(chat(max_tokens=tokens), key))).status

            assert await one(quiet, 2) == 200
            flood = [asyncio.ensure_future(one(noisy, 100)) for _ in range(120)]
            await until_queue(gateway, lambda status: status.waiting > 90)
            assert [await one(quiet, 2) for _ in range(5)] == [200] * 5
            (status,) = await gateway.queues()
            assert status.waiting > 50  # they did not wait for the flood
            assert status.endpoints[0].in_flight <= 16
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
            await gateway.wait_idle()


async def test_stale_figures_refuse_nobody(tmp_path: Path) -> None:
    """An engine that said it was full and then says nothing any more gets all requests again: own counts hold (PAINS
    23).
    """
    async with ScriptedEngine(pages={"/metrics": page(2, 5), "/health": b"{}"}) as engine:
        probe = {"interval_s": 0.05, "timeout_s": 0.1}
        async with RunningGateway(
            tmp_path, declare({"p": remote_pool(engine.url, engine="vllm", probe=probe)})
        ) as gateway:
            await gateway.wait_ready()
            status = await until_queue(gateway, lambda status: status.endpoints[0].places is not None)
            assert status.endpoints[0].engine_running == 2
            del engine.pages["/metrics"]
            status = await until_queue(gateway, lambda status: not status.endpoints[0].is_measured_fresh)
            status = await until_queue(gateway, lambda status: status.endpoints[0].places is None)
            assert status.endpoints[0].measured_age_s is not None
            assert (await send(gateway)).status == 200


async def test_nonsense_instead_of_metrics_is_survived(tmp_path: Path) -> None:
    """A page that is no metrics, or an error, is no reading; requests go on."""
    async with ScriptedEngine(pages={"/metrics": b"<html>\x00\xff", "/health": b"{}"}) as engine:
        async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="vllm")})) as gateway:
            await gateway.wait_ready()
            async with asyncio.timeout(BOUND_S):
                while sum(path == "/metrics" for path, _ in engine.asked) < 2:
                    await asyncio.sleep(0.02)
            (status,) = await gateway.queues()
            assert (status.endpoints[0].places, status.endpoints[0].measured_age_s) == (None, None)
            assert (await send(gateway)).status == 200


async def test_a_hung_page_of_metrics_delays_no_probe(tmp_path: Path) -> None:
    """An engine whose metrics hang is probed as before, and stays in use."""
    async with SilentPage() as engine:
        async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="vllm")})) as gateway:
            await gateway.wait_ready()
            ends_mono_s = time.monotonic() + BOUND_S
            while sum(path == "/health" for path, _ in engine.asked) < 5:
                assert time.monotonic() < ends_mono_s
                await asyncio.sleep(0.02)
            assert (await send(gateway)).status == 200
