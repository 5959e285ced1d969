"""How the real engines end under a stream, by order or by accident, and what callers see of it."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from tests.contract.checks import Stand, standing, until
from tests.real.figures import FIGURES
from tests.real.serving import RealEngine

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeVerdict

pytestmark = pytest.mark.timeout(900)

STALL_S = 6.0
DRAIN_TOKENS = 200
"""Takes some seconds on a CPU."""
GONE_S = 60.0
"""A vLLM worker whose core was killed lives on for 10 to 15 s."""


def only(kind: EngineKind, engine: RealEngine) -> None:
    if engine.kind is not kind:
        pytest.skip(f"about {kind}")


async def is_gone(engine: RealEngine) -> bool:
    return not await asyncio.to_thread(engine.members)


async def test_sigterm_without_a_drain_time_never_looks_like_success(running: RealEngine, tmp_path: Path) -> None:
    """vLLM cuts its streams, in one of two ways: an error and then the end mark, or silence for as long as the caller
    stays. Either way the caller gets one error in-band.
    """
    only(EngineKind.VLLM, running)
    async with standing(running, tmp_path, pool_keys={"stall_timeout_s": STALL_S}) as stand:
        await stand.ask(max_tokens=8)
        async with stand.open_stream(max_tokens=1500, ignore_eos=True) as stream:
            await stream.read_until_content()
            await running.terminate()
            begun_mono_s = time.monotonic()
            await stream.read_all()
            FIGURES.add("cut_s", time.monotonic() - begun_mono_s)
        assert not stream.is_success
        assert len(stream.errors) == 1
        assert not stream.finish_reasons
        assert stream.broke is None
        await until(lambda: is_gone(running), GONE_S, "the engine ends when its caller has gone")
        FIGURES.add("gone_after_sigterm_s", time.monotonic() - begun_mono_s)


async def test_sigterm_with_a_drain_time_lets_the_stream_finish(real_engine: RealEngine, tmp_path: Path) -> None:
    """With --shutdown-timeout a stream is whole; a new request meanwhile is never answered with an empty success."""
    only(EngineKind.VLLM, real_engine)
    real_engine.end()
    real_engine.extra_args = ("--shutdown-timeout", "60")
    async with standing(real_engine, tmp_path) as stand:
        async with stand.open_stream(max_tokens=DRAIN_TOKENS, ignore_eos=True) as stream:
            await stream.read_until_content()
            await real_engine.terminate()
            begun_mono_s = time.monotonic()
            direct = await ask_directly(real_engine)
            late = await stand.ask(max_tokens=1)
            await stream.read_all()
            FIGURES.add("drain_s", time.monotonic() - begun_mono_s)
        assert stream.is_success, stream.payloads[-3:]
        assert direct in (0, 500, 503), "what the engine itself answers while it drains"
        assert late.status_code in (502, 503), late.text
        await until(lambda: is_gone(real_engine), GONE_S, "the engine ends after its last stream")


async def ask_directly(engine: RealEngine) -> int:
    """Status of a small request sent past the gateway; 0 where the connection is refused."""
    body = {"model": engine.served_model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    async with httpx.AsyncClient(base_url=engine.url, timeout=180) as client:
        try:
            return (await client.post("/v1/chat/completions", json=body)).status_code
        except httpx.TransportError:
            return 0


async def test_sglang_drains_on_sigterm_and_is_left_alone(stand: Stand, real_engine: RealEngine) -> None:
    """A stream is whole, the engine would still take requests, and the gateway sends it none; then it ends."""
    only(EngineKind.SGLANG, real_engine)
    async with stand.open_stream(max_tokens=DRAIN_TOKENS, ignore_eos=True) as stream:
        await stream.read_until_content()
        await real_engine.terminate()
        begun_mono_s = time.monotonic()
        await stand.wait_unused()
        assert real_engine.verdict() is ProbeVerdict.LOADING
        late = await stand.ask(max_tokens=1)
        await stream.read_all()
        FIGURES.add("drain_s", time.monotonic() - begun_mono_s)
    assert stream.is_success, stream.payloads[-3:]
    assert late.status_code == 503, late.text
    await until(lambda: is_gone(real_engine), GONE_S, "the engine ends after its last stream")
    FIGURES.add("gone_after_sigterm_s", time.monotonic() - begun_mono_s)


async def test_a_core_that_is_killed_under_a_stream(stand: Stand, real_engine: RealEngine) -> None:
    """The caller gets one error in-band, the endpoint is out of routing, and the processes left over are gone soon."""
    await stand.ask(max_tokens=8)
    async with stand.open_stream(max_tokens=1500, ignore_eos=True) as stream:
        await stream.read_until_content()
        real_engine.kill_core()
        begun_mono_s = time.monotonic()
        await stream.read_all()
        FIGURES.add("core_killed_error_s", time.monotonic() - begun_mono_s)
    assert not stream.is_success
    assert len(stream.errors) == 1, stream.payloads[-3:]
    assert not stream.finish_reasons
    assert stream.broke is None
    await stand.wait_unused()
    FIGURES.add("core_killed_unused_s", time.monotonic() - begun_mono_s)
    assert (await stand.ask(max_tokens=1)).status_code in (502, 503)
    await until(lambda: is_gone(real_engine), GONE_S, "no process of it is left")
    FIGURES.add("core_killed_gone_s", time.monotonic() - begun_mono_s)
