"""Streams recorded from a real engine, served over sockets as they were or broken; errors of engines, translated."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.harness.raw_client import ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import STREAM_HEAD, ScriptedEngine, Seen, chunk_event, framed, whole

from headrace.gateway.http.sse import iter_events

CAPTURES = Path(__file__).resolve().parents[2] / "captures" / "llamacpp"
PATHS = {"messages_stream": "/v1/messages", "responses_stream": "/v1/responses"}
EVERY = ""
"""Name of the script that every request with `script:` in it gets."""
CONTEXT = (
    b'{"error":{"code":400,"message":"request (4000 tokens) exceeds the available context size (2048 tokens)",'
    b'"type":"exceed_context_size_error","n_prompt_tokens":4000,"n_ctx":2048}}'
)


class Sending:
    """A script that sends these blocks, each as a chunk and a write of its own, and ends as told."""

    def __init__(self, *blocks: bytes, is_whole: bool = True) -> None:
        self.blocks = blocks
        self.is_whole = is_whole

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for block in self.blocks:
            writer.write(framed(block))
            await writer.drain()
        if self.is_whole:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        else:
            writer.close()


def asking(path: str, gateway: RunningGateway) -> bytes:
    body = (
        chat("script:", stream_options={"include_usage": True})
        if "chat" in path
        else {"model": "m", "input": "script:"}
    )
    return post({"stream": True, **body}, gateway.key, path)


@pytest.fixture
async def llamacpp(tmp_path: Path, engine: ScriptedEngine):
    pool = remote_pool(engine.url) | {"engine": "llamacpp"}
    async with RunningGateway(tmp_path, declare({"p": pool})) as running:
        await running.wait_ready()
        yield running


@pytest.mark.parametrize(
    "name", ["tool_call_stream", "reasoning_stream", "chat_stream_unicode", "messages_stream", "responses_stream"]
)
async def test_a_recorded_stream_arrives_byte_for_byte(
    llamacpp: RunningGateway, engine: ScriptedEngine, name: str
) -> None:
    """In one write, in two, and byte by byte: the caller's stream is the engine's."""
    stream = (CAPTURES / f"{name}.response").read_bytes()
    path = PATHS.get(name, "/v1/chat/completions")
    half = len(stream) // 2
    bytewise = [stream[at : at + 1] for at in range(len(stream))]
    for blocks in ([stream], [stream[:half], stream[half:]], bytewise):
        engine.scripts = {EVERY: Sending(*blocks)}
        answer = await ask(llamacpp.port, asking(path, llamacpp))
        assert answer.status == 200
        assert answer.body == stream


async def test_a_stream_that_breaks_anywhere_ends_in_an_error(llamacpp: RunningGateway, engine: ScriptedEngine) -> None:
    """At each event's end and in its middle: whole events, then our error, never the mark of success."""
    events = iter_events((CAPTURES / "tool_call_stream.response").read_bytes())
    for count in range(1, len(events), max(1, len(events) // 8)):
        for half in (b"", events[count][: len(events[count]) // 2]):
            blocks = [block for block in (b"".join(events[:count]), half) if block]
            engine.scripts = {EVERY: Sending(*blocks, is_whole=False)}
            answer = await ask(llamacpp.port, asking("/v1/chat/completions", llamacpp))
            sent = iter_events(answer.body)
            assert sent[:-1] == events[:count]
            assert json.loads(sent[-1].removeprefix(b"data: "))["error"]["code"] == "stream_broken"
            assert b"[DONE]" not in answer.body


async def test_an_error_before_the_first_token_is_plain_json(llamacpp: RunningGateway, engine: ScriptedEngine) -> None:
    """A stream was asked for, but a status and a JSON body say more than a stream that holds only an error."""

    async def refuse(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(400, CONTEXT))
        await writer.drain()

    for script in (refuse, Sending(b"data: " + CONTEXT + b"\n\n")):
        engine.scripts = {EVERY: script}
        answer = await ask(llamacpp.port, asking("/v1/chat/completions", llamacpp))
        assert (answer.status, answer.code) == (400, "context_too_long")
        assert answer.headers["content-type"] == "application/json"
        assert "4000" in answer.json["error"]["message"]
        assert "2048" in answer.json["error"]["message"]


async def test_an_error_inside_a_stream_is_translated(llamacpp: RunningGateway, engine: ScriptedEngine) -> None:
    """The code inside the event decides, not the status that the stream began with."""
    engine.scripts = {EVERY: Sending(chunk_event("a"), b"data: " + CONTEXT + b"\n\n", b"data: [DONE]\n\n")}
    answer = await ask(llamacpp.port, asking("/v1/chat/completions", llamacpp))
    first, error = iter_events(answer.body)
    assert first == chunk_event("a")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "context_too_long"


async def test_only_our_own_headers_reach_an_engine(llamacpp: RunningGateway, engine: ScriptedEngine) -> None:
    """Headers by which a caller could name another's conversation, slot or cache stay outside."""
    strange = {"x-conversation-id": "1", "x-slot": "1", "cookie": "a=b", "x-forwarded-for": "1.2.3.4", "x-api-key": "k"}
    await ask(llamacpp.port, post(chat(), llamacpp.key, **strange))
    names = set(engine.seen[0].headers)
    assert names <= {"host", "content-type", "content-length", "accept", "x-request-id", "traceparent", "user-agent"}
