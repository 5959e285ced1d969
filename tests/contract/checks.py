"""The checks that every engine must pass behind a real gateway: one list for simulated and real engines alike.

To plug an engine in, write a class with the members of `EngineUnderTest` (a URL, the kind of its driver, and how to
start, end and kill its process), make a `Stand` of it with `async with standing(engine, folder) as stand`, and run
`await check(stand)` for each of CHECKS, in order or each with a stand of its own. `LIFE_CHECKS` end the engine and
start it again; run them last where a start is dear. tests/contract/test_simulated.py is the example.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import httpx
from tests.harness.running_gateway import RunningGateway, declare, remote_pool

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.contract import ProbeReply, ProbeVerdict
from headrace.engines.registry import driver_for

CALLED = "contract-model"
"""What callers call the model; the engine serves it under its own name."""

ANSWER_S = 120.0
"""Longest wait for one answer: a real engine on a busy CPU is slow."""

QUESTION = "Name the capital of France, and say why it is."

BEGINNING = "The capital of France is"
"""A real model ends at once after a whole sentence."""

CITY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "rank": {"type": "integer", "minimum": 1, "maximum": 9},
        "kind": {"enum": ["capital", "other"]},
    },
    "required": ["city", "rank", "kind"],
    "additionalProperties": False,
}


class EngineUnderTest(Protocol):
    """One engine process that a check may end and start again on the same address."""

    kind: EngineKind
    url: str
    served_model: str
    context_tokens: int
    start_bound_s: float
    """How long it may take from start to ready."""

    async def start(self) -> None:
        """Start the process and return without waiting until it is ready."""
        ...

    async def terminate(self) -> None:
        """Ask the process to end (SIGTERM) and return without waiting."""
        ...

    async def kill(self) -> None:
        """End the whole process group at once (SIGKILL) and return when nothing of it listens any more."""
        ...

    async def running_requests(self) -> int:
        """Requests that the engine itself says it runs now, by its own metrics or slots."""
        ...


@dataclass
class Stand:
    """A running gateway with one pool: the engine under test."""

    engine: EngineUnderTest
    gateway: RunningGateway
    client: httpx.AsyncClient

    async def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> httpx.Response:
        """A whole answer through the gateway; a chat with QUESTION unless `fields` say otherwise."""
        return await self.client.post(path, json=self.body(path, **fields))

    @contextlib.asynccontextmanager
    async def open_stream(self, path: str = "/v1/chat/completions", **fields: Any) -> AsyncIterator["Stream"]:
        async with self.client.stream("POST", path, json=self.body(path, stream=True, **fields)) as response:
            yield Stream(response)

    async def stream(self, path: str = "/v1/chat/completions", **fields: Any) -> "Stream":
        """A stream, read to its end."""
        async with self.open_stream(path, **fields) as stream:
            await stream.read_all()
            return stream

    @staticmethod
    def body(path: str, **fields: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"model": CALLED, "temperature": 0}
        if path == "/v1/chat/completions" and "messages" not in fields:
            asked["messages"] = [{"role": "user", "content": QUESTION}]
        if path == "/v1/completions" and "prompt" not in fields:
            asked["prompt"] = BEGINNING
        return {**asked, **fields}

    async def verdict(self) -> ProbeVerdict:
        """What the driver makes of the engine's readiness path right now."""
        driver = driver_for(self.engine.kind)
        return driver.read_probe(await probe(self.engine.url + driver.ready_path))

    async def wait_ready(self) -> list[ProbeVerdict]:
        """Wait until engine and gateway are ready; returns the verdicts on the way, repeats left out."""
        verdicts: list[ProbeVerdict] = []
        async with asyncio.timeout(self.engine.start_bound_s):
            while not verdicts or verdicts[-1] is not ProbeVerdict.READY:
                verdict = await self.verdict()
                if not verdicts or verdict is not verdicts[-1]:
                    verdicts.append(verdict)
                await asyncio.sleep(0.02)
        async with asyncio.timeout(20):
            while not any(endpoint.state == "ready" for endpoint in (await self.gateway.status()).endpoints):
                await asyncio.sleep(0.02)
        return verdicts

    async def wait_unused(self, bound_s: float = 20) -> None:
        """Wait until the gateway no longer takes the engine for usable."""
        async with asyncio.timeout(bound_s):
            while any(e.state in ("ready", "busy") for e in (await self.gateway.status()).endpoints):
                await asyncio.sleep(0.02)


@dataclass
class Stream:
    """One SSE answer as it came in."""

    response: httpx.Response
    payloads: list[str] = field(default_factory=list)
    """Of `data:` lines, in order, `[DONE]` included."""
    broke: str | None = None
    """How the transport failed, where it did."""
    _lines: AsyncIterator[str] | None = None

    async def read_event(self) -> str | None:
        """The next payload, or None at the end."""
        if self._lines is None:
            self._lines = self.response.aiter_lines()
        try:
            async for line in self._lines:
                if line.startswith("data: "):
                    self.payloads.append(line.removeprefix("data: "))
                    return self.payloads[-1]
        except httpx.TransportError as error:
            self.broke = repr(error)
        return None

    async def read_until_content(self) -> None:
        """Read on until some text of the answer is here."""
        while not self.text:
            assert await self.read_event() is not None, f"the stream ended without text: {self.payloads}"

    async def read_all(self) -> None:
        while await self.read_event() is not None:
            pass

    @property
    def chunks(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for payload in self.payloads if payload != "[DONE]"]

    @property
    def text(self) -> str:
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", [])]
        return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)

    @property
    def finish_reasons(self) -> list[str]:
        choices = [choice for chunk in self.chunks for choice in chunk.get("choices", [])]
        return [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]

    @property
    def usages(self) -> list[dict[str, Any]]:
        return [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [chunk["error"] for chunk in self.chunks if "error" in chunk]

    @property
    def is_success(self) -> bool:
        """Whether a caller takes this for a whole answer: a finish reason, the end mark, and no error."""
        return bool(self.finish_reasons) and self.payloads[-1] == "[DONE]" and not self.errors and self.broke is None


@contextlib.asynccontextmanager
async def standing(
    engine: EngineUnderTest, folder: Path, *, pool_keys: dict[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Stand]:
    """A gateway before `engine`, which is started if nothing answers there, and left as it is at the end.

    `pool_keys` are further keys of the pool, `sections` of the declaration, such as `gateway={...}`.
    """
    named = {"engine": engine.kind.value, "served_model": engine.served_model, "model": CALLED}
    pool = remote_pool(engine.url, **named, **(pool_keys or {}))
    declaration = declare({"p": pool}, models={CALLED: {}}, **sections)
    async with RunningGateway(folder, declaration) as gateway:
        headers = {"authorization": f"Bearer {gateway.key}"}
        async with httpx.AsyncClient(base_url=gateway.url, headers=headers, timeout=ANSWER_S) as client:
            stand = Stand(engine, gateway, client)
            if await stand.verdict() is ProbeVerdict.DEAD:
                await engine.start()
            await stand.wait_ready()
            yield stand


async def probe(url: str) -> ProbeReply:
    """Ask a readiness path as the gateway does."""
    async with httpx.AsyncClient(timeout=5) as client:
        try:
            response = await client.get(url)
        except httpx.ConnectError as error:
            return ProbeReply(status=None, is_refused=True, detail=str(error))
        except httpx.TimeoutException as error:
            return ProbeReply(status=None, is_timeout=True, detail=str(error))
        except httpx.TransportError as error:
            return ProbeReply(status=None, detail=str(error))
        return ProbeReply(status=response.status_code, body=response.content)


async def until(is_so: Callable[[], Awaitable[bool]], bound_s: float, what: str) -> None:
    """Poll until `is_so`."""
    ends_mono_s = time.monotonic() + bound_s
    while not await is_so():
        assert time.monotonic() < ends_mono_s, f"not so after {bound_s} s: {what}"
        await asyncio.sleep(0.05)


# --- checks that leave the engine as it was ---


async def check_chat(stand: Stand) -> None:
    """A question gets one answer under the name it was asked by, with usage that adds up."""
    response = await stand.ask(max_tokens=12)
    assert response.status_code == 200, response.text
    answer = response.json()
    choice, usage = answer["choices"][0], answer["usage"]
    assert answer["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant"
    assert choice["message"]["content"].strip()
    assert choice["finish_reason"] in ("stop", "length")
    assert 0 < usage["completion_tokens"] <= 12
    assert usage["prompt_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def check_completion(stand: Stand) -> None:
    """The older completions API answers too."""
    response = await stand.ask("/v1/completions", max_tokens=6)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["text"]
    assert response.json()["object"] == "text_completion"


async def check_stream(stand: Stand) -> None:
    """A stream says the same as a whole answer, ends with one finish reason and the end mark, and has no usage."""
    whole = (await stand.ask(max_tokens=12)).json()["choices"][0]
    stream = await stand.stream(max_tokens=12)
    assert stream.is_success, stream.payloads
    assert stream.text == whole["message"]["content"]
    assert stream.finish_reasons == [whole["finish_reason"]]
    assert stream.payloads.count("[DONE]") == 1
    assert not stream.usages, "usage that the caller did not ask for"
    assert len({chunk["id"] for chunk in stream.chunks}) == 1


async def check_stream_usage(stand: Stand) -> None:
    """With include_usage there is one more event, without choices, that counts what was streamed."""
    whole = (await stand.ask(max_tokens=12)).json()["usage"]
    stream = await stand.stream(max_tokens=12, stream_options={"include_usage": True})
    assert stream.is_success, stream.payloads
    last = stream.chunks[-1]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["completion_tokens"]
    assert last["usage"]["prompt_tokens"] == whole["prompt_tokens"]
    assert sum(1 for chunk in stream.chunks if chunk.get("usage")) == 1


async def check_many_streams(stand: Stand) -> None:
    """Eight callers at once each get their own whole stream, and nothing stays in flight."""
    streams = await asyncio.gather(*(stand.stream(max_tokens=8, ignore_eos=True) for _ in range(8)))
    assert all(stream.is_success for stream in streams), [stream.payloads[-3:] for stream in streams]
    assert (await stand.gateway.wait_idle()).in_flight == 0


async def check_cancel(stand: Stand) -> None:
    """A caller that leaves in the middle of a stream frees the engine."""
    async with stand.open_stream(max_tokens=stand.engine.context_tokens // 2, ignore_eos=True) as stream:
        await stream.read_until_content()
        await until(lambda: _is_running(stand), 15, "the engine counts it; SGLang's gauge is written every 40 tokens")
    await stand.gateway.wait_idle()
    await until(lambda: _is_idle(stand), 15, "the engine stops working for a caller that left")


async def check_cancel_whole(stand: Stand) -> None:
    """A caller that leaves while it waits for a whole answer frees the engine."""
    asked = asyncio.ensure_future(stand.ask(max_tokens=stand.engine.context_tokens // 2, ignore_eos=True))
    await until(lambda: _is_running(stand), 30, "the engine begins")
    asked.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked
    await until(lambda: _is_idle(stand), 30, "the engine stops working for a caller that left")


async def check_structured_output(stand: Stand) -> None:
    """A JSON schema in response_format is kept to, streamed or not."""
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY_SCHEMA, "strict": True}}
    whole = (await stand.ask(response_format=wanted, max_tokens=160)).json()["choices"][0]["message"]["content"]
    stream = await stand.stream(response_format=wanted, max_tokens=160)
    for text in (whole, stream.text):
        made = json.loads(text)
        assert set(made) == {"city", "rank", "kind"}
        assert isinstance(made["rank"], int)
        assert made["kind"] in ("capital", "other")


async def check_overflow(stand: Stand) -> None:
    """A prompt longer than the context is the caller's error with one code for all engines; the engine lives on."""
    messages = [{"role": "user", "content": "word " * (stand.engine.context_tokens * 2)}]
    for is_stream in (False, True):
        response = await stand.ask(messages=messages, max_tokens=4, stream=is_stream)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["code"] == ErrorCode.CONTEXT_TOO_LONG
    assert (await stand.ask(max_tokens=1)).status_code == 200


async def check_bad_value(stand: Stand) -> None:
    """A value that makes no sense is refused as the caller's fault, and never tried on another replica."""
    response = await stand.ask(max_tokens=4, temperature="hot")
    assert response.status_code == 400, response.text
    assert response.json()["error"]["code"] == ErrorCode.INVALID_REQUEST


async def _is_idle(stand: Stand) -> bool:
    return await stand.engine.running_requests() == 0


async def _is_running(stand: Stand) -> bool:
    return await stand.engine.running_requests() > 0


# --- checks that end the engine, and start it again ---


async def check_start(stand: Stand) -> None:
    """While it starts an engine is never taken for ready, and once it is ready it answers."""
    await stand.engine.kill()
    assert await stand.verdict() is ProbeVerdict.DEAD
    await stand.wait_unused()
    await stand.engine.start()
    verdicts = await stand.wait_ready()
    assert verdicts[-1] is ProbeVerdict.READY
    assert set(verdicts[:-1]) <= {ProbeVerdict.DEAD, ProbeVerdict.LOADING, ProbeVerdict.BUSY}
    assert (await stand.ask(max_tokens=1)).status_code == 200


async def check_drain(stand: Stand) -> None:
    """SIGTERM in the middle of a stream gives the caller the whole answer or an error, never a silent end."""
    limit = min(400, stand.engine.context_tokens // 2)
    async with stand.open_stream(max_tokens=limit, ignore_eos=True) as stream:
        await stream.read_until_content()
        await stand.engine.terminate()
        await stream.read_all()
    _assert_honest_end(stream)
    late = await stand.ask(max_tokens=1)
    assert late.status_code in (200, 502, 503), late.text
    await stand.engine.kill()
    await _starts_again(stand)


async def check_kill(stand: Stand) -> None:
    """An engine that is killed in the middle of a stream ends it with an error in-band, and headrace finds it again."""
    async with stand.open_stream(max_tokens=stand.engine.context_tokens // 2, ignore_eos=True) as stream:
        await stream.read_until_content()
        await stand.engine.kill()
        await stream.read_all()
    assert not stream.is_success
    assert stream.errors, stream.payloads[-3:]
    assert stream.broke is None, "the caller's connection must end in order"
    refused = await stand.ask(max_tokens=1)
    assert refused.status_code in (502, 503), refused.text
    assert await stand.verdict() is ProbeVerdict.DEAD
    assert (await stand.gateway.wait_idle()).in_flight == 0
    await _starts_again(stand)


def _assert_honest_end(stream: Stream) -> None:
    """Either everything came, or the caller is told that it did not."""
    if not stream.is_success:
        assert stream.errors, f"the stream ended without an error: {stream.payloads[-3:]}"
        assert not stream.finish_reasons, "an answer that was cut must not look finished"


async def _starts_again(stand: Stand) -> None:
    await stand.wait_unused()
    await stand.engine.start()
    await stand.wait_ready()
    assert (await stand.ask(max_tokens=1)).status_code == 200


Check = Callable[[Stand], Awaitable[None]]

CHECKS = MappingProxyType(
    {
        check.__name__.removeprefix("check_"): check
        for check in (
            check_chat,
            check_completion,
            check_stream,
            check_stream_usage,
            check_many_streams,
            check_cancel,
            check_cancel_whole,
            check_structured_output,
            check_overflow,
            check_bad_value,
        )
    }
)
"""Name -> check; these leave the engine as it was."""

LIFE_CHECKS = MappingProxyType(
    {check.__name__.removeprefix("check_"): check for check in (check_start, check_drain, check_kill)}
)
"""These end the engine and start it again."""
