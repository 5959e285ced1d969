"""How engines fail, each in its own way, and the one way in which callers and operators hear of it."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.harness.journal_records import records_of
from tests.harness.polling import until
from tests.harness.raw_client import RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import DONE, STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed, whole

from headrace.gateway.http.sse import iter_events

WORD = chunk_event("hello")
ERROR = b'data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}\n\n'
EVERY = ""


def sse_event(value: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n".encode()


MESSAGE = sse_event({"type": "message_start", "message": {"id": "m"}}, "message_start")
PIECE = sse_event(
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hello"}}, "content_block_delta"
)
NO_STOP = sse_event({"type": "message_delta", "delta": {"stop_reason": None}}, "message_delta")
MESSAGE_STOP = sse_event({"type": "message_stop"}, "message_stop")
TEXT = sse_event({"type": "response.output_text.delta", "delta": "hello"})
FAILED = sse_event(
    {"type": "response.failed", "response": {"id": "r", "status": "failed", "error": {"message": "died"}}}
)
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"

CUTS: dict[str, tuple[str, str, tuple[bytes, ...]]] = {
    "vllm: error event and end mark": ("vllm", CHAT, (WORD, ERROR, DONE)),
    "vllm: error event after the finish": ("vllm", CHAT, (WORD, chunk_event(finish="stop"), ERROR, DONE)),
    "vllm: end mark alone": ("vllm", CHAT, (WORD, DONE)),
    "vllm: aborted": ("vllm", CHAT, (WORD, chunk_event(finish="abort"), DONE)),
    "vllm: message without a stop reason": ("vllm", MESSAGES, (MESSAGE, PIECE, NO_STOP, MESSAGE_STOP)),
    "vllm: response that failed": ("vllm", RESPONSES, (TEXT, FAILED)),
    "sglang: aborted": ("sglang", CHAT, (WORD, chunk_event(finish="abort"), DONE)),
    "sglang: flat error": (
        "sglang",
        CHAT,
        (WORD, sse_event({"error": {"object": "error", "message": "aborted", "code": 503}}), DONE),
    ),
    "tensorrt-llm: cancelled": ("tensorrt-llm", CHAT, (WORD, chunk_event(finish="cancelled"), DONE)),
    "tensorrt-llm: timed out": ("tensorrt-llm", CHAT, (WORD, chunk_event(finish="timeout"), DONE)),
    "tensorrt-llm: connection ends": ("tensorrt-llm", CHAT, (WORD,)),
    "llamacpp: error event": (
        "llamacpp",
        CHAT,
        (WORD, sse_event({"error": {"code": 500, "message": "slot lost"}}), DONE),
    ),
    "llamacpp: older error event": ("llamacpp", CHAT, (WORD, b'error: {"code":500,"message":"slot lost"}\n\n', DONE)),
    "openai: end mark alone": ("openai", CHAT, (WORD, DONE)),
}
"""Engine, path, what it sends before its HTTP message ends in order."""


class Streaming:
    """A script that streams these events and ends its message in order."""

    def __init__(self, *events: bytes) -> None:
        self.events = events

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + b"".join(framed(event) for event in self.events) + b"0\r\n\r\n")
        await writer.drain()


class Answering:
    """A script that answers whole."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = whole(status, body)

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(self.answer)
        await writer.drain()


def body_for(path: str, *, stream: bool = False) -> dict[str, Any]:
    body = {"model": "m", "input": "script:"} if path == RESPONSES else chat("script:")
    return {**body, "stream": stream}


async def settled(folder: Path, gateway: RunningGateway) -> list[dict[str, Any]]:
    """The ledger's records, once nothing is in flight."""
    await gateway.wait_idle()
    await gateway.stop()
    return records_of(folder / "journal")


@pytest.mark.parametrize("name", CUTS)
async def test_a_cut_stream_is_never_success(tmp_path: Path, engine: ScriptedEngine, name: str) -> None:
    """What came passes; then an error with our code in-band, never the end mark; and the ledger says failed."""
    kind, path, events = CUTS[name]
    engine.scripts = {EVERY: Streaming(*events)}
    pool = remote_pool(engine.url, engine=kind)
    async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
        await gateway.wait_ready()
        answer = await ask(gateway.port, post(body_for(path, stream=True), gateway.key, path))
        assert answer.status == 200
        sent = iter_events(answer.body)
        assert b"hello" in answer.body
        assert b"[DONE]" not in answer.body
        assert b"message_stop" not in answer.body
        error = json.loads(sent[-1].split(b"data: ", 1)[1])
        assert (error.get("code") or error["error"]["code"]) == "stream_broken"
        [record] = await settled(tmp_path, gateway)
        assert (record["outcome"], record["code"]) == ("failed", "stream_broken")


FAILED_WHOLE: dict[str, tuple[str, bytes]] = {
    "vllm: aborted": (CHAT, b'{"id":"a","choices":[{"index":0,"message":{"content":"he"},"finish_reason":"abort"}]}'),
    "sglang: error with status 200": (CHAT, b'{"error":{"message":"scheduler died","code":500}}'),
    "vllm: response that failed": (RESPONSES, b'{"id":"r","object":"response","status":"failed","output":[]}'),
}


@pytest.mark.parametrize("name", FAILED_WHOLE)
async def test_an_answer_that_is_none_goes_to_another_replica(tmp_path: Path, name: str) -> None:
    """A whole answer by which the engine says that it gave up is tried elsewhere, and not handed on."""
    path, body = FAILED_WHOLE[name]
    async with ScriptedEngine({EVERY: Answering(200, body)}) as bad, ScriptedEngine() as good:
        pool = remote_pool(bad.url, good.url, engine="vllm")
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            for _ in range(4):
                answer = await ask(gateway.port, post(body_for(path), gateway.key, path))
                assert (answer.status, answer.json["id"]) == (200, "chatcmpl-1")
            assert bad.seen
            assert len(good.seen) == 4


async def test_a_vllm_that_drains_is_taken_out_though_its_probe_is_well(tmp_path: Path) -> None:
    """It answers 500 to new requests and 200 to /health: one such answer moves all traffic to the other replica."""
    leaving = (
        b'{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError","code":500}}'
    )
    async with ScriptedEngine({EVERY: Answering(500, leaving)}) as draining, ScriptedEngine() as good:
        pool = remote_pool(draining.url, good.url, engine="vllm", probe={"interval_s": 0.05})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            for _ in range(8):
                assert (await ask(gateway.port, post(body_for(CHAT), gateway.key))).status == 200
                probes = len(draining.asked)
                await until(lambda: len(draining.asked) > probes, what="another probe, answered well")  # noqa: B023
            assert len(draining.seen) == 1
            states = {e.endpoint: (e.state, e.reason) for e in (await gateway.status()).endpoints}
            state, reason = states[f"p/127.0.0.1:{draining.port}"]
            assert state == "not-ready"
            assert "shutting down" in reason
            # when it has gone and come back, it is used again
            await draining.stop()
            async with asyncio.timeout(20):
                while "no connection" not in {e.reason.split(":")[0] for e in (await gateway.status()).endpoints}:
                    await asyncio.sleep(0.02)
            draining.scripts = {}
            await draining.start()
            await gateway.wait_ready(endpoints=2)


async def test_an_sglang_that_drains_gets_nothing_though_it_would_take_it(tmp_path: Path) -> None:
    """Draining it goes on accepting; /ready says 503, and that is what counts."""

    async def not_ready() -> bytes:
        return whole(503, b"")

    async with ScriptedEngine() as draining, ScriptedEngine() as good:
        pool = remote_pool(draining.url, good.url, engine="sglang", probe={"interval_s": 0.05})
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            draining.probe = not_ready
            async with asyncio.timeout(20):
                while sum(e.state == "ready" for e in (await gateway.status()).endpoints) > 1:
                    await asyncio.sleep(0.02)
            before = len(draining.seen)
            for _ in range(4):
                assert (await ask(gateway.port, post(body_for(CHAT), gateway.key))).status == 200
            assert len(draining.seen) == before


@pytest.mark.parametrize(
    ("kind", "path", "page"),
    [
        ("vllm", "/health", "/metrics"),
        ("sglang", "/ready", "/metrics"),
        ("tensorrt-llm", "/health", "/prometheus/metrics"),
        ("llamacpp", "/health", "/metrics"),
    ],
)
async def test_probes_ask_what_costs_nothing(
    tmp_path: Path, engine: ScriptedEngine, kind: str, path: str, page: str
) -> None:
    """SGLang's /health generates a token and trtllm-serve's /metrics is used up by reading: neither is ever asked.

    How long a context it takes is asked once.
    """
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine=kind)})) as gateway:
        await gateway.wait_ready()
        await ask(gateway.port, post(body_for(CHAT), gateway.key))
        await gateway.metrics()
        async with asyncio.timeout(20):
            while len(engine.asked) < 5:
                await asyncio.sleep(0.02)
        asked = Counter(asked for asked, _ in engine.asked)
        assert set(asked) == {path, page, "/v1/models"}
        assert asked["/v1/models"] == 1


@pytest.mark.parametrize(
    ("message", "fails_over"),
    [
        ("CUDA error: out of memory", True),
        ("Executor worker died", True),
        ("KV cache manager: no free blocks", True),
        ("`logprobs` must be 1", False),
        ("temperature must be positive", False),
    ],
)
async def test_trtllm_faults_are_told_apart_by_message(tmp_path: Path, message: str, fails_over: bool) -> None:
    """It answers everything with 400: its own fault goes to another replica, the caller's to the caller, once."""
    body = json.dumps({"object": "error", "message": message, "type": "BadRequestError", "code": 400}).encode()
    async with ScriptedEngine({EVERY: Answering(400, body)}) as bad, ScriptedEngine() as good:
        pool = remote_pool(bad.url, good.url, engine="tensorrt-llm")
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            await gateway.wait_ready(endpoints=2)
            answers = [await ask(gateway.port, post(body_for(CHAT), gateway.key)) for _ in range(2)]
            assert bad.seen
            if fails_over:
                assert [answer.status for answer in answers] == [200, 200]
            else:
                refused = [answer for answer in answers if answer.status == 400]
                assert [answer.code for answer in refused] == ["invalid_request"] * len(bad.seen)
                assert message in refused[0].json["error"]["message"]


MAXIMUM = "This model's maximum context length is 2048 tokens. However, "
TOO_LONG: dict[str, tuple[str, str]] = {
    "llamacpp": (
        "llamacpp",
        "request (4000 tokens) exceeds the available context size (2048 tokens), try increasing it",
    ),
    "llamacpp embeddings": (
        "llamacpp",
        "input (4000 tokens) is too large to process. increase the physical batch size (current batch size: 2048)",
    ),
    "vllm": ("vllm", MAXIMUM + "your prompt contains 4000 input tokens, which exceeds this limit even without output."),
    "vllm older": (
        "vllm",
        MAXIMUM + "you requested 4016 tokens (4000 in the messages, 16 in the completion).",
    ),
    "sglang": ("sglang", "The input (4000 tokens) is longer than the model's context length (2048 tokens)."),
    "sglang scheduler": (
        "sglang",
        "Input length (4000 tokens) exceeds the maximum allowed length (2048 tokens). Use a shorter input.",
    ),
    "tensorrt-llm": (
        "tensorrt-llm",
        "The sum of prompt length (4000.0), query length (0) should not exceed max_num_tokens (2048)",
    ),
    "tensorrt-llm sequence": ("tensorrt-llm", "prompt_token_ids length (4000) is greater than max_seq_len (2048)"),
    "openai": ("openai", MAXIMUM + "your messages resulted in 4000 tokens."),
    "anthropic": ("openai", "prompt is too long: 4000 tokens > 2048 maximum"),
}
"""Engine, what it says."""


def error_of(kind: str, message: str) -> bytes:
    """An error answer in the engine's shape."""
    inner = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    is_flat = kind in ("sglang", "tensorrt-llm")
    return json.dumps({"object": "error", **inner} if is_flat else {"error": inner}).encode()


@pytest.mark.parametrize("name", TOO_LONG)
async def test_an_over_long_prompt_is_one_error_with_both_numbers(
    tmp_path: Path, engine: ScriptedEngine, name: str
) -> None:
    """Whatever the engine says: context_too_long, the numbers in the text and as figures, whole or in a stream."""
    kind, message = TOO_LONG[name]
    body = error_of(kind, message)
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine=kind)})) as gateway:
        await gateway.wait_ready()
        for script in (Answering(400, body), Streaming(b"data: " + body + b"\n\n", DONE)):
            engine.scripts = {EVERY: script}
            answer = await ask(gateway.port, post(body_for(CHAT, stream=True), gateway.key))
            assert (answer.status, answer.code) == (400, "context_too_long"), answer.body
            error = answer.json["error"]
            assert (error["prompt_tokens"], error["context_tokens"]) == (4000, 2048)
            assert error["message"] == (
                "the prompt has 4000 tokens, and the model's context holds 2048: shorten the prompt"
            )
        assert len(engine.seen) == 2, "no other attempt would help"


async def test_a_prompt_that_fits_only_without_its_output_says_so(tmp_path: Path, engine: ScriptedEngine) -> None:
    """SGLang refuses prompt and output together, where others cut the output."""
    message = (
        "Requested token count exceeds the model's maximum context length of 2048 tokens. You requested a total of "
        "2100 tokens: 100 tokens from the input messages and 2000 tokens for the completion."
    )
    body = error_of("sglang", message)
    engine.scripts = {EVERY: Answering(400, body)}
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="sglang")})) as gateway:
        await gateway.wait_ready()
        error = (await ask(gateway.port, post(body_for(CHAT), gateway.key))).json["error"]
        assert (error["code"], error["prompt_tokens"], error["context_tokens"]) == ("context_too_long", 100, 2048)
        assert "less output" in error["message"]


async def test_a_request_that_its_caller_left_is_counted_by_us(tmp_path: Path, engine: ScriptedEngine) -> None:
    """vLLM counts aborted requests nowhere: the ledger has them as cancelled, and the metrics count them."""

    async def endless(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        while True:
            writer.write(framed(WORD))
            await writer.drain()
            await asyncio.sleep(0.02)

    engine.scripts = {EVERY: endless}
    async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="vllm")})) as gateway:
        await gateway.wait_ready()
        async with RawClient(gateway.port) as client:
            await client.send(post(body_for(CHAT, stream=True), gateway.key))
            await client.head()
            with contextlib.suppress(StopAsyncIteration):
                await anext(client.chunks())
        await gateway.wait_idle()
        metrics = await gateway.metrics()
        assert any('outcome="cancelled"' in line and line.endswith(" 1.0") for line in metrics.splitlines())
        assert await gateway.metric(f'headrace_engine_cancels_total{{endpoint="p/127.0.0.1:{engine.port}"}}') == 1
        [record] = await settled(tmp_path, gateway)
        assert (record["outcome"], record["code"]) == ("cancelled", "caller_disconnected")
        assert record["output_tokens"] >= 1
