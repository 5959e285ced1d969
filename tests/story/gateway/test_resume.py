"""Streams whose engine breaks in the middle go on at another: to the token, and as one answer; or end with a reason.

Simulated engines in this process: their text is a function of the prompt, so that a lost or doubled token shows.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.harness.journal_records import records_of
from tests.harness.polling import until
from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, addresses_of, declare, remote_pool
from tests.harness.scripted_engine import (
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    chunk_event,
    framed,
    usage_event,
    whole,
)
from tests.harness.simulated_engine import DRIVERS, MODEL, serving, simulated
from tests.harness.told_stream import ToldStream

from headrace.declaration.gateway_plan import EndpointAddress, compile_gateway_plan
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.faults import Cut, Fault, FaultBook, FaultKind
from headrace.engines.simulated.service import Service
from headrace.engines.simulated.text import encode, expected_text

QUESTION = [{"role": "user", "content": "Tell me a story."}]
TOKENS = 60


class Pair:
    """Replicas behind a gateway."""

    def __init__(self, services: list[Service], gateway: RunningGateway, folder: Path) -> None:
        self.services = services
        self.gateway = gateway
        self.folder = folder
        self.faults = FaultBook()
        """One book for all, so that what is to happen once happens once."""
        for service in services:
            service.faults = self.faults

    def break_streams(self, times: int = 1, **fault: Any) -> None:
        """The next streams break after a few tokens, at whichever engine they are."""
        members = {"kind": FaultKind.CUT, "count": times, "after_tokens": 20, **fault}
        self.faults.put([Fault(**members)], time.monotonic())
        for service in self.services:
            service.on_faults_changed()

    async def tell(self, path: str = "/v1/chat/completions", **fields: Any) -> ToldStream:
        prompt = {"prompt": "Tell me a story. "} if path == "/v1/completions" else {"messages": QUESTION}
        body = {"model": "m", "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True, **prompt, **fields}
        body = {name: value for name, value in body.items() if value is not None}
        return await ToldStream(body).read(self.gateway.port, self.gateway.key, path)

    async def counted(self, metric: str) -> float:
        return await self.gateway.metric(metric) or 0.0


@pytest_asyncio.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def start(
            dialect: DialectKind = DialectKind.VLLM,
            *,
            count: int = 2,
            resume: dict[str, Any] | None = None,
            **keys: Any,
        ) -> Pair:
            services = [(await stack.enter_async_context(serving(simulated(dialect))))[0] for _ in range(count)]
            urls = [f"http://127.0.0.1:{service.port}" for service in services]
            pool = remote_pool(*urls, engine=DRIVERS[dialect].value, served_model=MODEL, **keys)
            declared = declare({"p": pool}, gateway={"resume": {"wait_s": 1.0, **(resume or {})}})
            gateway = await stack.enter_async_context(RunningGateway(tmp_path, declared))
            await gateway.wait_ready(endpoints=count)
            return Pair(services, gateway, tmp_path)

        yield start


def said(tokens: int = TOKENS, prompt: Any = QUESTION) -> str:
    return expected_text(MODEL, prompt, tokens)


def assert_one_answer(stream: ToldStream, text: str) -> None:
    assert stream.error is None, stream.error
    assert stream.text == text
    assert stream.is_whole
    assert stream.reasons == ["length"]


@pytest.mark.parametrize("dialect", [DialectKind.VLLM, DialectKind.SGLANG, DialectKind.LLAMACPP])
async def test_a_broken_stream_goes_on_as_one_answer(begin: Callable[..., Any], dialect: DialectKind) -> None:
    """Closed, reset or ended by an error event, twice: the caller sees one stream, one id, one role, its own limit."""
    pair: Pair = await begin(dialect)
    whole = await pair.tell(stream_options={"include_usage": True})
    assert whole.usage is not None
    for how in Cut:
        pair.break_streams(2, how=how)
        stream = await pair.tell(stream_options={"include_usage": True})
        assert_one_answer(stream, said())
        assert stream.roles == 1
        assert stream.usage is not None
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert stream.usage[name] == whole.usage[name]
        assert stream.usage["completion_tokens"] == TOKENS
    assert await pair.counted('headrace_resumes_total{cause="died",model="m"}') == 6
    assert await pair.counted('headrace_resume_gap_seconds_count{model="m"}') == 6


async def test_a_resumed_request_is_one_record(begin: Callable[..., Any]) -> None:
    """The ledger has one request, completed, both attempts and the whole output; usage is hidden as ever."""
    pair: Pair = await begin()
    pair.break_streams()
    stream = await pair.tell()
    assert_one_answer(stream, said())
    assert stream.usage is None
    whole = await pair.tell()
    await pair.gateway.wait_idle()
    await pair.gateway.stop()
    first, second = records_of(pair.gateway.settings.journal_dir)
    assert (first["outcome"], first["attempts"], first["output_tokens"]) == ("completed", 2, TOKENS)
    assert first["input_tokens"] == second["input_tokens"]
    assert whole.text == stream.text


async def test_completions_go_on_from_their_prompt(begin: Callable[..., Any]) -> None:
    """A text prompt is gone on with; where no limit was given, the engine's own holds for both parts together."""
    pair: Pair = await begin()
    pair.break_streams()
    assert_one_answer(await pair.tell("/v1/completions"), said(prompt="Tell me a story. "))
    pair.break_streams(after_tokens=6)
    assert_one_answer(await pair.tell("/v1/completions", max_tokens=None), said(16, "Tell me a story. "))


async def test_a_prompt_of_tokens_goes_on_as_tokens(begin: Callable[..., Any]) -> None:
    """An engine tells the tokens of what the caller has, and takes them after those of the prompt."""
    pair: Pair = await begin()
    prompt = "Tell me a story:"
    pair.break_streams()
    stream = await pair.tell("/v1/completions", prompt=list(encode(prompt)))
    assert stream.error is None, stream.error
    assert stream.text == said(prompt=prompt)


async def test_messages_of_llamacpp_go_on(begin: Callable[..., Any]) -> None:
    """A stream of Anthropic's events has one beginning, one block, one end, and the whole count."""
    pair: Pair = await begin(DialectKind.LLAMACPP)
    body = {"model": "m", "messages": QUESTION, "max_tokens": TOKENS, "temperature": 0, "stream": True}
    answers: list[list[dict[str, Any]]] = []
    for breaks in (True, False):
        if breaks:
            pair.break_streams()
        answer = await ask(pair.gateway.port, post(body, pair.gateway.key, "/v1/messages"))
        lines = [line for line in answer.body.decode().splitlines() if line.startswith("data: ")]
        answers.append([json.loads(line.removeprefix("data: ")) for line in lines])
    broken, whole = answers
    assert [event["type"] for event in broken] == [event["type"] for event in whole]
    assert [event.get("delta") for event in broken] == [event.get("delta") for event in whole]
    assert broken[-2]["usage"]["output_tokens"] == whole[-2]["usage"]["output_tokens"]


async def test_a_stop_text_across_the_seam_stops(begin: Callable[..., Any]) -> None:
    """Where the caller has the beginning of a stop text and the rest is new, the answer ends there."""
    pair: Pair = await begin()
    text = said()
    cut = len(said(20))
    pair.break_streams()
    stream = await pair.tell(stop=[text[cut - 2 : cut + 6]], ignore_eos=None, stream_options={"include_usage": True})
    assert stream.error is None
    assert text.startswith(stream.text)
    assert len(stream.text) <= cut
    assert stream.reasons == ["stop"]
    assert stream.is_ended
    assert stream.usage is not None


async def test_an_answer_whose_end_alone_is_missing_is_ended(begin: Callable[..., Any]) -> None:
    """All tokens that were asked for have come, and the engine dies: no other engine is asked."""
    pair: Pair = await begin()
    pair.break_streams(after_tokens=TOKENS - 1)
    stream = await pair.tell(max_tokens=TOKENS - 1, stream_options={"include_usage": True})
    assert_one_answer(stream, said(TOKENS - 1))
    assert stream.usage is not None
    assert stream.usage["completion_tokens"] == TOKENS - 1


LONG_TEXT = {"type": "object", "properties": {"a": {"type": "string", "minLength": 80}}, "required": ["a"]}
BARRED: dict[str, dict[str, Any]] = {
    "logprobs": {"logprobs": True},
    "choices": {"n": 2},
    "penalties": {"presence_penalty": 0.5},
    "min_tokens": {"min_tokens": 5},
    "seed": {"seed": 7, "temperature": 0.5},
    "structured": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": LONG_TEXT}}},
    "reasoning": {"reasoning_effort": "low"},
    "tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    "field": {"some_field_of_tomorrow": 1},
    "messages": {"messages": [*QUESTION, {"role": "assistant", "content": "Once"}]},
}


async def test_what_would_not_be_the_same_ends_with_its_reason(begin: Callable[..., Any]) -> None:
    """What cannot be gone on with rightly is not: an error in the stream that says why, and a count of it."""
    pair: Pair = await begin(probe={"eject_after": 100})
    for reason, fields in BARRED.items():
        pair.break_streams(after_tokens=2)
        body = {"model": "m", "messages": QUESTION, "max_tokens": TOKENS, "ignore_eos": True, "stream": True, **fields}
        answer = await ask(pair.gateway.port, post(body, pair.gateway.key))
        assert b"[DONE]" not in answer.body, reason
        error = json.loads(answer.body.split(b"\n\n")[-2].removeprefix(b"data: "))["error"]
        assert error["code"] == "stream_broken"
        assert "not resumed: " in error["message"]
        assert await pair.counted(f'headrace_unresumed_streams_total{{model="m",reason="{reason}"}}') == 1
    assert await pair.counted("headrace_resumes_total") == 0


async def test_a_seed_of_a_greedy_answer_is_no_bar(begin: Callable[..., Any]) -> None:
    """Greedy answers do not depend on it."""
    pair: Pair = await begin(DialectKind.LLAMACPP)
    pair.break_streams()
    assert_one_answer(await pair.tell(seed=7), said())


async def test_resume_can_be_switched_off_and_is_bounded(begin: Callable[..., Any]) -> None:
    """Off in the pool: it ends in-band. Beyond max_resumes: likewise, so that no request kills engine after engine."""
    pair: Pair = await begin(resume={"max_resumes": 1})
    pair.break_streams(2)
    stream = await pair.tell()
    assert stream.error is not None
    assert "max_resumes" in stream.error["message"]
    declared = pair.gateway.declaration.model_dump(mode="json")
    declared["pools"]["p"]["resume"]["enabled"] = False
    declared.pop("ledger")
    assert (await pair.gateway.configure(type(pair.gateway.declaration).model_validate(declared))).ok
    pair.break_streams()
    stream = await pair.tell()
    assert stream.error is not None
    assert "switched off" in stream.error["message"]


async def test_a_text_that_is_longer_than_is_kept_is_not_resumed(begin: Callable[..., Any]) -> None:
    """Beyond kept_bytes the gateway forgets the text."""
    pair: Pair = await begin(resume={"kept_bytes": 16})
    pair.break_streams(kind=FaultKind.STALL)
    reading = asyncio.ensure_future(pair.tell())
    await until(lambda: pair.faults.view(0.0)[0]["happened"])
    await asyncio.sleep(0.6)  # two sweeps, of which nothing can be seen yet
    await pair.gateway.status()  # answered by the loop that sweeps: what was due is done, however slow the machine is
    for service in pair.services:
        service.close()
    stream = await reading
    assert stream.error is not None
    assert "kept_bytes" in stream.error["message"]


async def test_a_stalled_stream_goes_on(begin: Callable[..., Any]) -> None:
    """Silent for longer than the pool's bound: given up, and gone on with elsewhere."""
    pair: Pair = await begin(stall_timeout_s=30.0)
    declared = pair.gateway.declaration.model_dump(mode="json")
    declared["pools"]["p"]["resume"]["stall_s"] = 0.5
    declared.pop("ledger")
    assert (await pair.gateway.configure(type(pair.gateway.declaration).model_validate(declared))).ok
    pair.break_streams(kind=FaultKind.STALL)
    assert_one_answer(await pair.tell(), said())
    assert await pair.counted('headrace_resumes_total{cause="stalled",model="m"}') == 1


async def test_the_only_replica_is_waited_for(begin: Callable[..., Any]) -> None:
    """With no other replica the stream waits a while, and goes on where it began once that is well again."""
    pair: Pair = await begin(count=1)
    pair.break_streams()
    assert_one_answer(await pair.tell(), said())


async def test_a_replica_that_is_taken_away_gives_its_streams_away(begin: Callable[..., Any]) -> None:
    """A drained endpoint has nothing in flight long before its streams would have ended, and no caller notices."""
    pair: Pair = await begin(resume={"drain_after_s": 0.2})
    streams = [asyncio.ensure_future(pair.tell(max_tokens=1000)) for _ in range(4)]
    async with asyncio.timeout(20):
        while (await pair.gateway.status()).endpoints[0].in_flight != 2:
            await asyncio.sleep(0.01)
    declared = pair.gateway.declaration
    [first, second] = addresses_of(declared)["p"]
    leaving = EndpointAddress(endpoint=first.endpoint, url=first.url, is_draining=True)
    assert (await pair.gateway.configure_plan(compile_gateway_plan(declared, {"p": (leaving, second)}, revision=2))).ok
    async with asyncio.timeout(20):
        while (await pair.gateway.status()).endpoints[0].in_flight:
            await asyncio.sleep(0.01)
    assert not any(stream.done() for stream in streams)
    for stream in streams:
        assert_one_answer(await stream, said(1000))
    assert await pair.counted('headrace_resumes_total{cause="drained",model="m"}') == 2


@pytest.mark.parametrize("knows", [True, False])
async def test_tokens_that_came_together_are_counted(tmp_path: Path, engine: ScriptedEngine, *, knows: bool) -> None:
    """A busy vLLM sends several tokens in one event: the limit and usage of the rest go by the engine's own count."""
    asked: list[dict[str, Any]] = []

    async def answer(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        if request.path == "/tokenize":
            writer.write(whole(200, b'{"count":4,"tokens":[1,2,3,4]}') if knows else whole(404, b"{}"))
            return
        asked.append(request.json)
        begun = STREAM_HEAD + framed(chunk_event("script: one two"))
        if len(asked) == 1:
            writer.write(begun)
            await writer.drain()
            writer.transport.abort()
        else:
            usage = usage_event(input_tokens=11, output_tokens=2)
            end = chunk_event(" three four", finish="length") + usage + b"data: [DONE]\n\n"
            writer.write(STREAM_HEAD + framed(end) + b"0\r\n\r\n")

    engine.scripts = {"": answer}
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="vllm")})) as gateway:
        await gateway.wait_ready()
        body = {"model": "m", "messages": [{"role": "user", "content": "script:"}], "max_tokens": 6}
        stream = await ToldStream({**body, "stream_options": {"include_usage": True}}).read(gateway.port, gateway.key)
    had = 4 if knows else 1
    assert stream.text == "script: one two three four"
    assert asked[1]["max_tokens"] == 6 - had
    assert stream.usage is not None
    assert (stream.usage["prompt_tokens"], stream.usage["completion_tokens"]) == (11 - had, 2 + had)
