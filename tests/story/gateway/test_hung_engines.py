"""Engines that hang: their probes go unanswered, and whoever waits there is answered by another engine, soon."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import MODEL, SimulatedProcess

from headrace.domain.routing_status import RouteExplanation
from headrace.domain.worker import ExplainRoute
from headrace.engines.simulated.config import DialectKind

CHAT = "/v1/chat/completions"
SOON_S = 40.0
"""Far less than any bound on an answer that these pools declare, and enough for a slow machine."""
GATEWAY = {"resume": {"wait_s": 1.0}}
PROBE = {"interval_s": 0.2, "timeout_s": 0.2, "eject_after": 1, "eject_s": 60.0}
PATIENT = {"stall_timeout_s": 60.0, "answer_timeout_s": 60.0}


def body_of(text: str, *, stream: bool, max_tokens: int = 4) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": MODEL, "messages": [message], "max_tokens": max_tokens, "stream": stream}


@contextlib.contextmanager
def stopped(engine: SimulatedProcess):
    """It hangs: the system still takes connections for it."""
    assert engine.process is not None
    os.kill(engine.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine.process.pid, signal.SIGCONT)


@contextlib.asynccontextmanager
async def two(
    folder: Path,
    pools_of: Any,
    *arguments: tuple[str, ...],
    dialect: DialectKind = DialectKind.VLLM,
    step_ms: float = 2,
) -> AsyncGenerator[tuple[SimulatedProcess, SimulatedProcess, RunningGateway, httpx.AsyncClient]]:
    """Two engines behind a gateway, and a caller with a bound of his own."""
    first, second = arguments or ((), ())
    one = SimulatedProcess(dialect, folder, *first, step_ms=step_ms)
    other = SimulatedProcess(dialect, folder, *second, step_ms=step_ms)
    async with one, other:
        pools = {name: pool | {"model": MODEL} for name, pool in pools_of(one, other).items()}
        async with RunningGateway(folder / "state", declare(pools, models={MODEL: {}}, gateway=GATEWAY)) as gateway:
            await gateway.wait_ready(endpoints=2)
            key = {"authorization": f"Bearer {gateway.key}"}
            async with httpx.AsyncClient(timeout=SOON_S, headers=key, base_url=gateway.url) as client:
                yield one, other, gateway, client


async def state_of(gateway: RunningGateway, engine: SimulatedProcess) -> tuple[str, int, int]:
    """Its state, the requests there now, and those it was ever sent."""
    found = next(one for one in (await gateway.status()).endpoints if one.endpoint.endswith(str(engine.port)))
    return found.state, found.in_flight, found.requests


def is_whole(answer: httpx.Response) -> bool:
    is_stream = answer.headers["content-type"].startswith("text/event-stream")
    return answer.status_code == 200 and (not is_stream or answer.text.rstrip().endswith("data: [DONE]"))


async def tell(client: httpx.AsyncClient, body: dict[str, Any], begun: asyncio.Event) -> httpx.Response:
    """A stream, whole; `begun` is set when the first of it is here."""
    async with client.stream("POST", CHAT, json=body) as answer:
        content = b""
        async for block in answer.aiter_bytes():
            begun.set()
            content += block
    return httpx.Response(answer.status_code, headers=answer.headers, content=content)


async def test_who_waits_at_an_engine_that_hangs_is_answered_by_another(tmp_path: Path) -> None:
    """Whole answers and streams alike, long before the bounds, also where it was ejected before probes failed."""

    def pools(one: SimulatedProcess, other: SimulatedProcess) -> dict[str, dict[str, Any]]:
        bounds = {**PATIENT, "first_token_timeout_s": 1.0, "probe": PROBE}
        return {"p": remote_pool(one.url, other.url, engine="vllm", **bounds)}

    async with two(tmp_path, pools, step_ms=20) as (one, _, gateway, client):
        begun = [asyncio.Event() for _ in range(6)]
        calls: list[asyncio.Future[httpx.Response]] = []
        for number, event in enumerate(begun):
            whole, stream = (body_of(f"word {number}", stream=stream, max_tokens=150) for stream in (False, True))
            calls += [
                asyncio.ensure_future(client.post(CHAT, json=whole)),
                asyncio.ensure_future(tell(client, stream, event)),
            ]
        async with asyncio.timeout(SOON_S):
            while (await state_of(gateway, one))[1] < 3:
                await asyncio.sleep(0.01)
            await asyncio.gather(*(event.wait() for event in begun))
        with stopped(one):
            async with asyncio.timeout(SOON_S):
                while (await state_of(gateway, one))[0] != "ejected":
                    assert is_whole(await client.post(CHAT, json=body_of("hi", stream=True)))
            answers = await asyncio.gather(*calls)
    assert [is_whole(answer) for answer in answers] == [True] * 12


def halves(engine: str, *, eject_after: int, **handover: Any) -> Any:
    """Pools of a prefill and a decode engine."""

    def pools(one: SimulatedProcess, other: SimulatedProcess) -> dict[str, dict[str, Any]]:
        wanted = {"min_tokens": 50, "min_gain_s": -3600, "warm_up": False, **handover}
        return {
            role: remote_pool(
                each.url,
                engine=engine,
                probe={**PROBE, "eject_after": eject_after},
                disaggregation={"role": role},
                handover=wanted,
                **PATIENT,
            )
            for role, each in (("prefill", one), ("decode", other))
        }

    return pools


ROLES = (("--role", "prefill"), ("--role", "decode"))


async def explained(gateway: RunningGateway, text: str) -> RouteExplanation:
    wish = ExplainRoute(body=msgspec.json.encode(body_of(text, stream=False)).decode(), path=CHAT)
    return msgspec.json.decode((await gateway.command(wish)).text, type=RouteExplanation)


async def test_prefill_helps_out_before_a_decode_engine_that_fails_is_tried(tmp_path: Path) -> None:
    """With decode ejected, requests go to the prefill engine whole, and `route explain` says so."""
    pools = halves("vllm", eject_after=2, timeout_s=1.0)
    async with two(tmp_path, pools, *ROLES) as (prefill, decode, gateway, client):
        await decode.set_faults({"count": 1000, "kind": "error", "status": 500})
        async with asyncio.timeout(SOON_S):
            while (await state_of(gateway, decode))[0] != "ejected":
                answer = await client.post(CHAT, json=body_of("hi", stream=False))
                assert is_whole(answer), answer.text
        before = await state_of(gateway, decode)
        for text in ("hi", "word " * 100):
            for is_stream in (False, True):
                assert is_whole(await client.post(CHAT, json=body_of(text, stream=is_stream)))
        assert await state_of(gateway, decode) == before
        found = await explained(gateway, "hi")
    assert found.picked == f"prefill/127.0.0.1:{prefill.port}"
    assert "nobody else" in found.reason
    assert [(one.pool, one.reason.split(":")[0]) for one in found.candidates if one.outcome == "filtered"] == [
        ("decode", "ejected")
    ]


async def test_the_first_prompts_do_not_wait_for_a_prefill_engine_that_hangs(tmp_path: Path) -> None:
    """Though nothing is known of its speed yet: once its probes go unanswered, decode answers alone."""
    async with two(tmp_path, halves("vllm", eject_after=50, timeout_s=1.0), *ROLES) as (prefill, _, gateway, client):
        with stopped(prefill):
            answers = await asyncio.gather(
                *(client.post(CHAT, json=body_of(f"{number} word " * 100, stream=number > 0)) for number in range(2))
            )
        assert [is_whole(answer) for answer in answers] == [True, True]
        fallbacks = [line for line in (await gateway.metrics()).splitlines() if "handover_fallbacks_total{" in line]
    assert [float(line.rsplit(" ", 1)[1]) for line in fallbacks if "prefill_late" in line] == [2.0]


async def test_short_prompts_at_a_decode_engine_that_hangs_go_to_prefill(tmp_path: Path) -> None:
    """They were not handed over, and nobody but the prefill engine can answer them."""
    pools = halves("vllm", eject_after=50, timeout_s=1.0)
    async with two(tmp_path, pools, *ROLES, step_ms=20) as (_, decode, gateway, client):
        calls = [
            asyncio.ensure_future(client.post(CHAT, json=body_of("hi", stream=is_stream, max_tokens=100)))
            for is_stream in (False, True, False)
        ]
        async with asyncio.timeout(SOON_S):
            while (await state_of(gateway, decode))[1] < len(calls):
                await asyncio.sleep(0.01)
        with stopped(decode):
            answers = await asyncio.gather(*calls)
    assert [is_whole(answer) for answer in answers] == [True] * 3


async def test_a_stream_of_a_decode_engine_that_was_ejected_and_hangs_ends_soon(tmp_path: Path) -> None:
    """Where no engine answers alone there is nowhere to go on: the caller is told within seconds, not a minute."""
    pools = halves("sglang", eject_after=1, timeout_s=0.5)

    def meeting(one: SimulatedProcess, other: SimulatedProcess) -> dict[str, dict[str, Any]]:
        return {
            role: pool | {"handover": pool["handover"] | {"bootstrap_port": one.port}}
            for role, pool in pools(one, other).items()
        }

    async with two(tmp_path, meeting, *ROLES, dialect=DialectKind.SGLANG, step_ms=20) as (_, decode, gateway, client):
        begun = asyncio.Event()
        long = asyncio.ensure_future(tell(client, body_of("word " * 100, stream=True, max_tokens=400), begun))
        async with asyncio.timeout(SOON_S):
            await begun.wait()  # it takes 8 s from here
        await decode.set_faults({"count": 1, "kind": "error", "status": 500})
        await client.post(CHAT, json=body_of("hi", stream=False))
        assert (await state_of(gateway, decode))[0] == "ejected"
        with stopped(decode):
            answer = await long
    assert (answer.status_code, "stream_stalled" in answer.text) == (200, True), answer.text[-400:]
