"""What an engine tells of its KV cache reaches routing and the metrics of a real gateway worker."""

import asyncio
import contextlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.harness.ports import free_port
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import DRIVERS, MODEL, serving, simulated

from headrace.engines.contract import EVENT_PORT_OFFSET, REPLAY_PORT_OFFSET
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.service import Service

BOUND_S = 30
HELD, BELIEVED = "headrace_kv_events_held_tokens", "headrace_routing_index_tokens"
STORED, REMOVED = "headrace_kv_events_stored_blocks_total", "headrace_kv_events_removed_blocks_total"
MESSAGES, EMPTIED = "headrace_kv_events_messages_total", "headrace_kv_events_emptied_total"
PICKS, ENGINES = "headrace_routing_picks_total", "headrace_pool_measured_engines"
WITHOUT_PYZMQ = (
    "import runpy, sys; sys.modules['zmq'] = None; runpy.run_module('headrace.gateway', run_name='__main__')"
)
LONG = "The same long beginning of every prompt, so that it is worth finding again. " * 60


@contextlib.asynccontextmanager
async def telling(dialect: DialectKind = DialectKind.VLLM, **more: Any) -> AsyncIterator[tuple[str, Service]]:
    """A simulated engine with KV events on the ports that follow from its own: its URL, and itself."""
    port = free_port(EVENT_PORT_OFFSET, REPLAY_PORT_OFFSET)
    at = {
        "endpoint": f"tcp://[::ffff:127.0.0.1]:{port + EVENT_PORT_OFFSET}",
        "replay_endpoint": f"tcp://[::ffff:127.0.0.1]:{port + REPLAY_PORT_OFFSET}",
        "topic": "kv-events",
    }
    async with serving(simulated(dialect, port=port, kv_events=json.dumps(at), **more)) as (service, _):
        yield f"http://127.0.0.1:{service.port}", service


def pool_of(*urls: str, dialect: DialectKind = DialectKind.VLLM, model: str = "m") -> dict[str, Any]:
    engine = DRIVERS[dialect].value
    return remote_pool(*urls, engine=engine, model=model, served_model=MODEL, telemetry={"kv_events": True})


async def ask(gateway: RunningGateway, text: str, model: str = "m") -> None:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 4, "stream": True}
    headers = {"authorization": f"Bearer {gateway.key}"}
    async with httpx.AsyncClient(timeout=20) as client:
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text


def series(page: str, name: str, **labels: str) -> float | None:
    """The sum of a metric's series that have these labels; None where there is none."""
    found = [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
        and all(f'{key}="{value}"' in line for key, value in labels.items())
    ]
    return sum(found) if found else None


async def until(gateway: RunningGateway, holds: Callable[[str], bool], act: Callable[[], Awaitable[None]]) -> str:
    """Act until the worker's metrics say so."""
    async with asyncio.timeout(BOUND_S):
        while True:
            page = await gateway.metrics()
            if holds(page):
                return page
            await act()
            await asyncio.sleep(0.1)


async def test_stored_blocks_are_counted_whichever_engine_tells(tmp_path: Path) -> None:
    """The tokens that an engine holds are a metric: vLLM's and SGLang's over ZeroMQ, TensorRT-LLM's by polling."""
    dialects = (DialectKind.VLLM, DialectKind.SGLANG, DialectKind.TENSORRT_LLM)
    async with contextlib.AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(telling(dialect)))[0] for dialect in dialects]
        pools = {
            dialect.value: pool_of(url, dialect=dialect, model=dialect.value)
            for url, dialect in zip(urls, dialects, strict=True)
        }
        models: dict[str, Any] = {dialect.value: {} for dialect in dialects}
        gateway = await stack.enter_async_context(RunningGateway(tmp_path, declare(pools, models=models)))
        numbers = iter(range(10_000))

        async def act() -> None:
            for dialect in dialects:
                await ask(gateway, f"{LONG}{next(numbers)} is new", dialect.value)

        def all_tell(page: str) -> bool:
            held = [series(page, HELD, endpoint=name, tier="device") for name in named]
            return all(tokens is not None and tokens > 500 for tokens in held)

        named = [f"{dialect.value}/{url.removeprefix('http://')}" for url, dialect in zip(urls, dialects, strict=True)]
        page = await until(gateway, all_tell, act)
        assert series(page, MESSAGES, result="missed") == 0
        assert series(page, MESSAGES, result="unreadable") == 0


async def test_a_cleared_cache_is_forgotten_by_the_index(tmp_path: Path) -> None:
    """SGLang's cache is flushed: the gateway no longer believes that prompts are found there."""
    sglang = DialectKind.SGLANG
    async with telling(sglang) as (one, first), telling(sglang) as (two, second):
        async with RunningGateway(tmp_path, declare({"p": pool_of(one, two, dialect=sglang)})) as gateway:

            async def more() -> None:
                await asyncio.gather(*(ask(gateway, f"{LONG}{number} is new") for number in range(8)))

            def have_both_told(page: str) -> bool:
                return all(
                    (series(page, MESSAGES, endpoint=f"p/{url[7:]}", result="read") or 0) > 1 for url in (one, two)
                )

            page = await until(gateway, have_both_told, more)
            assert (series(page, BELIEVED) or 0) > 500
            for service in (first, second):
                service.clear_cache()
            page = await until(gateway, lambda page: series(page, EMPTIED, cause="cleared") == 2, nothing)
            assert series(page, BELIEVED) == 0


async def test_the_index_believes_no_more_than_an_engine_holds(tmp_path: Path) -> None:
    """A cache of a few prompts evicts: what the index believes shrinks with it, though its default is far more."""
    async with telling(kv_tokens=4096) as (one, _), telling(kv_tokens=4096) as (two, _):
        async with RunningGateway(tmp_path, declare({"p": pool_of(one, two)})) as gateway:
            numbers = iter(range(10_000))

            async def act() -> None:
                await asyncio.gather(*(ask(gateway, f"{next(numbers)} " * 600) for _ in range(8)))

            def is_small(page: str) -> bool:
                removed, held, believed = series(page, REMOVED), series(page, HELD), series(page, BELIEVED)
                has_evicted = removed is not None and removed > 200
                return has_evicted and held is not None and believed is not None and believed < held + 3000

            await until(gateway, is_small, act)


async def test_without_pyzmq_a_warning_says_what_to_install(tmp_path: Path) -> None:
    """Events that are declared and cannot be read are no reason not to serve; the log names the extra."""
    async with telling() as (url, _):
        gateway = RunningGateway(tmp_path, declare({"p": pool_of(url)}))
        gateway.program = ("-c", WITHOUT_PYZMQ)
        async with gateway:
            await ask(gateway, LONG)
            async with asyncio.timeout(BOUND_S):
                while '(extra \\"kv-events\\")' not in gateway.log_path.read_text():
                    await asyncio.sleep(0.05)
            assert series(await gateway.metrics(), MESSAGES) is None


async def nothing() -> None:
    """What is waited for comes by itself."""


async def test_the_page_is_what_prometheus_takes(tmp_path: Path) -> None:
    """Prometheus' own promtool finds nothing to complain about in a worker's page, all routing metrics in it."""
    async with telling() as (one, _), telling() as (two, _):
        async with RunningGateway(tmp_path, declare({"p": pool_of(one, two)})) as gateway:
            numbers = iter(range(10_000))

            async def act() -> None:
                await ask(gateway, f"{LONG}{next(numbers)} is new")

            def has_all(page: str) -> bool:
                return bool(series(page, PICKS, reason="prefix") and series(page, STORED) and series(page, ENGINES))

            page = await until(gateway, has_all, act)
    picks = (series(page, PICKS, reason="prefix") or 0) + (series(page, PICKS, reason="load") or 0)
    assert picks == series(page, "headrace_routing_ttft_prediction_ratio_count", pool="p")
    expected, cached, told = (
        series(page, "headrace_routing_prefix_tokens_total", model="m", kind=kind)
        for kind in ("expected", "cached", "input")
    )
    assert None not in (expected, cached, told)
    assert (told or 0) >= (cached or 0) > 0
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    ours = "".join(line + "\n" for line in page.splitlines() if "headrace_gateway_process" not in line)
    command = [promtool, "check", "metrics"]
    checked = await asyncio.to_thread(subprocess.run, command, input=ours, capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
