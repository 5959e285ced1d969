"""Prompts handed from a prefill to a decode engine, through the gateway: two simulated engines of each dialect."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.harness.journal_records import records_of
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.simulated_engine import DRIVERS, MODEL, SimulatedProcess, serving, simulated

from headrace.cli.route import split_line
from headrace.domain.routing_status import RouteExplanation
from headrace.domain.worker import ExplainRoute
from headrace.engines.simulated.config import DialectKind

TIMEOUT_S = 0.5
CHAT = "/v1/chat/completions"
SLOTS = 4
FALLBACKS = "headrace_handover_fallbacks_total{"


def body_of(text: str, *, stream: bool = True, **fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 6,
        "stream": stream,
        **fields,
    }


def text_of(answer: httpx.Response) -> str:
    """The caller's text, streamed or whole."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return answer.json()["choices"][0]["message"]["content"]
    assert answer.text.rstrip().endswith("data: [DONE]"), answer.text
    text = ""
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            choices = httpx.Response(200, content=line.removeprefix("data: ")).json()["choices"]
            text += "".join(choice["delta"].get("content") or "" for choice in choices)
    return text


@dataclass(kw_only=True)
class Scene:
    """A pair behind a gateway, and what its answer should be."""

    dialect: DialectKind
    prefill: SimulatedProcess
    decode: SimulatedProcess
    gateway: RunningGateway
    client: httpx.AsyncClient
    folder: Path
    whole: httpx.AsyncClient
    """An engine beside them, which says what the answer should be."""
    prompts: int = 0

    async def ask(self, text: str | None = None, **fields: Any) -> httpx.Response:
        return await self.client.post(self.gateway.url + CHAT, json=body_of(text or self.prompt(), **fields))

    def prompt(self) -> str:
        """Each time one that nobody has cached."""
        self.prompts += 1
        return f"{self.prompts} words, " * 100

    async def check_right(self, **fields: Any) -> None:
        """The caller has the right text, whatever failed; nothing is left running, and no file."""
        prompt = self.prompt()
        expected = await self.whole.post(CHAT, json=body_of(prompt, stream=False))
        answer = await self.ask(prompt, **fields)
        assert (answer.status_code, text_of(expected)) == (200, text_of(answer))
        await self.gateway.wait_idle()
        async with asyncio.timeout(20):
            while list(self.folder.glob("*.bin")):
                await asyncio.sleep(0.02)

    async def counted(self, name: str) -> float:
        lines = (await self.gateway.metrics()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"headrace_handover{name}"))

    async def check_falls_back(self) -> None:
        """A request whose hand-over fails is answered all the same, and counted."""
        before = await self.counted("_fallbacks_total{")
        await self.check_right()
        assert await self.counted("_fallbacks_total{") > before


def pool_of(dialect: DialectKind, url: str, role: str | None, folder: Path, port: int, **more: Any) -> dict[str, Any]:
    handover = {"min_tokens": 50, "min_gain_s": -3600, "timeout_s": TIMEOUT_S, "bootstrap_port": port}
    slots = {"folder": str(folder), "slots": SLOTS} if dialect is DialectKind.LLAMACPP else {}
    part = {"disaggregation": {"role": role}, "handover": {**handover, **slots, **more}} if role else {}
    engine = DRIVERS[dialect].value
    return remote_pool(url, engine=engine, probe={"eject_after": 50}, **part) | {"model": MODEL}


@contextlib.asynccontextmanager
async def scene_of(dialect: DialectKind, folder: Path, *, has_whole: bool, **handover: Any) -> AsyncGenerator[Scene]:
    """Two processes with their roles behind a gateway; `has_whole`: and one that answers alone."""
    slots = folder / "slots"
    slots.mkdir()
    more = ("--slot-dir", str(slots), "--max-sequences", str(SLOTS)) if dialect is DialectKind.LLAMACPP else ()
    one, two = (SimulatedProcess(dialect, folder, "--role", role, *more) for role in ("prefill", "decode"))
    async with one, two, serving(simulated(dialect)) as (service, whole):
        pools = {
            "prefill": pool_of(dialect, one.url, "prefill", slots, one.port, **handover),
            "decode": pool_of(dialect, two.url, "decode", slots, two.port),
        }
        if has_whole:
            pools["whole"] = pool_of(dialect, f"http://127.0.0.1:{service.port}", None, slots, 1)
        async with RunningGateway(folder / "state", declare(pools, models={MODEL: {}})) as gateway:
            await gateway.wait_ready(endpoints=len(pools))
            key = {"authorization": f"Bearer {gateway.key}"}
            await gateway.wait_warm()
            async with httpx.AsyncClient(timeout=60, headers=key) as client:
                yield Scene(
                    dialect=dialect,
                    prefill=one,
                    decode=two,
                    gateway=gateway,
                    client=client,
                    folder=slots,
                    whole=whole,
                )


DIALECTS = [DialectKind.VLLM, DialectKind.SGLANG, DialectKind.TENSORRT_LLM, DialectKind.LLAMACPP]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_prompt_is_handed_over_and_what_fails_goes_to_one_engine(dialect: DialectKind, tmp_path: Path):
    """Refusals, lost and late KV, a stopped engine and killed ones: each request has its right answer, once charged."""
    async with scene_of(dialect, tmp_path, has_whole=dialect is DialectKind.SGLANG) as scene:
        await check_hands_over(scene)
        await check_refusals(scene)
        await check_transfer(scene)
        await check_caller_leaves(scene)
        await check_deaths(scene)
        status = await scene.gateway.wait_idle()
    records = records_of(scene.gateway.settings.journal_dir)
    assert status.requests == len(records)
    assert len({record["uid"] for record in records}) == len(records)


async def check_hands_over(scene: Scene) -> None:
    """Streamed and whole; short prompts, and what cannot be split, stay with one engine."""
    await scene.check_right()
    await scene.check_right(stream=False)
    assert await scene.counted('s_total{end="completed"') == 2
    await check_explained(scene)
    if scene.dialect is DialectKind.SGLANG:
        return
    assert (await scene.ask("hi")).status_code == 200
    assert (await scene.ask(n=2, stream=False)).status_code == 200
    assert await scene.counted("s_total{") == 2
    assert await scene.counted('_decisions_total{model="sim-model",reason="short"') == 1
    assert await scene.counted('_decisions_total{model="sim-model",reason="cannot"') == 1


async def explain(scene: Scene, text: str, **fields: Any) -> RouteExplanation:
    wish = ExplainRoute(body=msgspec.json.encode(body_of(text, **fields)).decode(), path=CHAT)
    return msgspec.json.decode((await scene.gateway.command(wish)).text, type=RouteExplanation)


async def check_explained(scene: Scene) -> None:
    """`headrace route explain` says that it would be split, between whom, or why not."""
    long, short = await explain(scene, scene.prompt()), await explain(scene, "hi")
    assert long.split is not None
    assert (long.split.is_split, long.split.prefill) == (True, f"prefill/127.0.0.1:{scene.prefill.port}")
    assert split_line(long.split).startswith("split: prefill/")
    reserve = [one.reason for one in long.candidates if one.pool == "prefill"]
    assert reserve == ["role: it computes prompts for others, and answers alone only where nobody else can"]
    if scene.dialect is not DialectKind.SGLANG:
        assert short.split is not None
        assert (short.split.is_split, short.split.reason) == (False, "short")


async def check_refusals(scene: Scene) -> None:
    for engine, status in ((scene.prefill, 500), (scene.decode, 503)):
        await engine.set_faults({"count": 1, "kind": "error", "status": status})
        await scene.check_falls_back()


async def check_transfer(scene: Scene) -> None:
    """KV that is lost on the way, and KV that is slow."""
    if scene.dialect is DialectKind.LLAMACPP:  # its files: tests/contract/test_handover_gateway_real.py
        return
    await scene.prefill.set_faults({"count": 1, "kind": "kv-loss"})
    await scene.check_falls_back()
    await scene.decode.set_faults({"count": 1, "kind": "kv-slow", "stall_s": 60.0})
    await scene.check_falls_back()


async def check_caller_leaves(scene: Scene) -> None:
    """Both engines are told that nobody waits."""
    await scene.prefill.set_faults({"count": 1, "kind": "stall", "stall_s": 60.0, "after_tokens": 0})
    before = await scene.counted('s_total{end="caller-left"')
    with contextlib.suppress(httpx.TimeoutException):
        await scene.client.post(scene.gateway.url + CHAT, json=body_of(scene.prompt()), timeout=0.2)
    await scene.prefill.set_faults()
    await scene.gateway.wait_idle()
    assert await scene.counted('s_total{end="caller-left"') >= before


async def check_deaths(scene: Scene) -> None:
    """An engine that hangs, and engines that are gone."""
    assert scene.prefill.process is not None
    os.kill(scene.prefill.process.pid, signal.SIGSTOP)
    try:
        await scene.check_falls_back()
    finally:
        os.kill(scene.prefill.process.pid, signal.SIGCONT)
    await scene.decode.kill()
    await scene.check_right()
    await scene.prefill.kill()
    if scene.dialect is DialectKind.SGLANG:
        await scene.check_right()
    else:
        assert (await scene.ask()).status_code in (502, 503)


async def code_of(scene: Scene, **fields: Any) -> tuple[int, str]:
    answer = await scene.ask(**fields)
    await scene.gateway.wait_idle()
    return answer.status_code, answer.json()["error"]["code"]


async def test_where_no_engine_answers_alone_each_failure_has_its_own_code(tmp_path: Path):
    """SGLang's halves answer nothing alone: the caller is told what failed, in time, and asks again with success."""
    async with scene_of(DialectKind.SGLANG, tmp_path, has_whole=False) as scene:
        await scene.check_right(stream=False)
        assert await code_of(scene, n=2) == (400, "unsupported_parameter")
        explained = await explain(scene, scene.prompt(), n=2)
        assert (explained.picked, [one.outcome for one in explained.candidates]) == (None, ["filtered", "filtered"])
        assert "cannot do this (n)" in explained.reason
        embeddings = await scene.client.post(
            scene.gateway.url + "/v1/embeddings", json={"model": MODEL, "input": "word " * 100}
        )
        message = embeddings.json()["error"]["message"]
        assert (embeddings.status_code, "/v1/embeddings" in message, "without a role" in message) == (400, True, True)
        await scene.decode.set_faults({"count": 20, "kind": "kv-loss"})
        assert await code_of(scene) == (502, "kv_transfer_failed")
        await scene.decode.set_faults()
        await scene.check_right()
        await scene.decode.set_faults({"count": 20, "kind": "kv-slow", "stall_s": 60.0})
        assert await code_of(scene) == (504, "kv_transfer_timeout")
        await scene.decode.set_faults()
        await scene.check_right()
        await scene.prefill.kill()
        await wait_away(scene.gateway, "prefill")
        assert await code_of(scene) == (502, "decode_unavailable")


async def test_an_engine_that_answers_alone_helps_out_where_prefill_is_gone(tmp_path: Path):
    """SGLang's decode engine cannot answer alone, also not what it has cached: what came to it goes to one that can."""
    async with scene_of(DialectKind.SGLANG, tmp_path, has_whole=True) as scene:
        prompt = scene.prompt()
        texts = {text_of(await scene.ask(prompt)) for _ in range(2)}
        assert await scene.counted('s_total{end="completed"') == 2
        explained = [await explain(scene, text, n=2) for text in (prompt, scene.prompt())]
        assert [(one.picked or "").split("/")[0] for one in explained] == ["whole", "whole"]
        await scene.prefill.kill()
        await wait_away(scene.gateway, "prefill")
        texts |= {text_of(await scene.ask(prompt)) for _ in range(4)}
        assert len(texts) == 1
        assert (await scene.ask(n=2, stream=False)).status_code == 200
        for _ in range(4):
            await scene.check_right()


async def wait_away(gateway: RunningGateway, pool: str) -> None:
    async with asyncio.timeout(30):
        while next(one.state for one in (await gateway.status()).endpoints if one.pool == pool) in ("ready", "busy"):
            await asyncio.sleep(0.05)


async def test_engines_that_do_not_fit_are_never_paired(tmp_path: Path):
    """Where a declaration was not checked, the caller is told that the engines do not fit."""
    async with serving(simulated(DialectKind.SGLANG)) as (one, _), serving(simulated(DialectKind.SGLANG)) as (two, _):
        pools = {
            role: pool_of(DialectKind.SGLANG, f"http://127.0.0.1:{service.port}", role, tmp_path, 1)
            | {"parallel": {"tensor": tensor}}
            for role, service, tensor in (("prefill", one, 2), ("decode", two, 4))
        }
        async with RunningGateway(tmp_path / "state", declare(pools, models={MODEL: {}})) as gateway:
            await gateway.wait_ready(endpoints=2)
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {gateway.key}"}) as client:
                answer = await client.post(gateway.url + CHAT, json=body_of("word " * 100))
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "kv_layout_mismatch")
