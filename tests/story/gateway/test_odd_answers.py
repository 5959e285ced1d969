"""Engines whose answers are odd at the edges: heads without end, other media types, endless pings, counts in quotes."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.journal_records import records_of
from tests.harness.raw_client import RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import (
    DONE,
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    answer_normally,
    chunk_event,
    completion,
    framed,
    usage_event,
    whole,
)

from headrace.gateway.http.engine_connection import BARE_BYTES

ONE_READ_BYTES = 256 * 1024
"""At most so much is read at once."""
END = b"0\r\n\r\n"
WORDS = (chunk_event("a"), chunk_event(finish="stop"), usage_event(), DONE)
BOUNDS = {"stall_timeout_s": 1.0, "first_token_timeout_s": 2.0, "probe": {"eject_after": 100}}


@asynccontextmanager
async def serving(folder: Path, engine: ScriptedEngine, script: Any, **gateway: Any) -> AsyncIterator[RunningGateway]:
    """A gateway before one engine that answers every request with `script`."""
    engine.otherwise = script
    pool = remote_pool(engine.url, **BOUNDS | gateway.pop("pool", {}))
    async with RunningGateway(folder, declare({"p": pool}, gateway=gateway)) as running:
        await running.wait_ready()
        yield running


def telling(*blocks: bytes) -> Any:
    """A script that sends these bytes."""

    async def script(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        for block in blocks:
            writer.write(block)
            await writer.drain()

    return script


def stream_of(*events: bytes, head: bytes = STREAM_HEAD) -> bytes:
    return head + b"".join(framed(event) for event in events) + END


BARE = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"x-%d: " + b"a" * 900 + b"\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\nx-0: ", b"a" * 900),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\nx-%d: y\r\n\r\n"),
    "trailer": (STREAM_HEAD + framed(WORDS[0]) + b"0\r\n", b"x-%d: " + b"a" * 900 + b"\r\n"),
    "frame": (STREAM_HEAD + framed(WORDS[0]) + b"5;", b"a" * 900),
}
"""What has no end, and none of an answer's body in it: how it begins, and how it goes on."""


async def test_what_is_no_body_has_a_bound(tmp_path: Path, engine: ScriptedEngine) -> None:
    """An engine that sends headers for ever is cut off soon, and none of it is kept."""
    most = 8 * 1024 * 1024
    sent: dict[str, int] = {}

    async def flood(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        name = request.json["messages"][0]["content"]  # pyright: ignore[reportIndexIssue]
        beginning, piece = BARE[name]
        writer.write(beginning)
        sent[name] = 0
        while sent[name] < 2 * most:
            writer.write(piece.replace(b"%d", b"%d" % sent[name]))
            sent[name] += len(piece)
            await writer.drain()
        await asyncio.sleep(3600)

    async with serving(tmp_path, engine, flood, retry={"max_attempts": 1}) as gateway:
        for name in BARE:
            answer = await ask(gateway.port, post(chat(name, stream=True), gateway.key))
            assert b'"code":"stream_broken"' in answer.body
        await gateway.wait_idle()
        assert all(0 < size < most for size in sent.values())
        engine.otherwise = answer_normally
        assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200


async def test_a_large_head_is_taken_up_to_the_bound(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Cookies and traces of proxies are no reason to lose an answer."""
    head, _, body = whole(200, completion()).partition(b"\r\n\r\n")
    async with serving(tmp_path, engine, None, retry={"max_attempts": 1}) as gateway:
        for extra, status in ((0, 200), (ONE_READ_BYTES, 502)):
            padding = b"\r\nx-large: " + b"a" * (BARE_BYTES + extra - len(head) - 15)
            engine.otherwise = telling(head + padding, b"\r\n\r\n" + body)
            assert (await ask(gateway.port, post(chat(), gateway.key))).status == status


async def test_a_long_stream_in_tiny_pieces_has_no_such_bound(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Frames of chunks that arrive by themselves are not summed up over an answer."""
    pieces = [(b"%x\r\n" % len(event), event, b"\r\n") for event in [WORDS[0]] * 60 + list(WORDS)]
    long_frames = [(size[:-2] + b";" + b"e" * 2000 + b"\r\n", event, end) for size, event, end in pieces]
    script = telling(STREAM_HEAD, *[part for piece in long_frames for part in piece], END)
    async with serving(tmp_path, engine, script) as gateway:
        answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
        assert answer.body.count(b'"content":"a"') == 61
        assert answer.body.endswith(DONE)


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_with_odd_usage_is_an_answer(tmp_path: Path, engine: ScriptedEngine, is_stream: bool) -> None:
    """It is computed once, and reaches the caller as the engine wrote it."""
    odd = ('"n/a"', "[1]", '{"prompt_tokens":"7","completion_tokens":3}', '{"prompt_tokens":7.5}')
    asked = chat(stream=is_stream, **({"stream_options": {"include_usage": True}} if is_stream else {}))
    async with serving(tmp_path, engine, None) as gateway:
        for number, usage in enumerate(odd, start=1):
            body = completion().decode().replace('"chatcmpl-1"', "5")
            body = body[: body.index('"usage"')] + f'"usage": {usage}}}'
            event = (
                f'data: {{"id":5,"choices":[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"usage":{usage}}}\n\n'
            )
            stream = (WORDS[0], event.encode(), DONE)
            engine.otherwise = telling(stream_of(*stream) if is_stream else whole(200, body.encode()))
            answer = await ask(gateway.port, post(asked, gateway.key))
            assert (answer.status, len(engine.seen)) == (200, number)
            assert answer.body == (b"".join(stream) if is_stream else body.encode())


@pytest.mark.parametrize("is_stream", [False, True])
async def test_no_more_is_cached_than_went_in(tmp_path: Path, engine: ScriptedEngine, is_stream: bool) -> None:
    """The ledger keeps what can be, whatever an engine says of its cache."""
    counts = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1000000}}
    body = json.dumps(json.loads(completion()) | {"usage": counts}).encode()
    stream = stream_of(WORDS[0], WORDS[1], usage_event(cached=1000000), DONE)
    async with serving(tmp_path, engine, telling(stream if is_stream else whole(200, body))) as gateway:
        assert (await ask(gateway.port, post(chat(stream=is_stream), gateway.key))).status == 200
        await gateway.stop()
        [record] = records_of(gateway.settings.journal_dir)
        assert (record["input_tokens"], record["cached_input_tokens"]) == (7, 7)


NO_ANSWERS = {
    "HTML or XML": whole(200, b"<html>sign in</html>", "text/html"),
    "gzip": whole(200, gzip.compress(completion())),
    "events": whole(200, b"".join(WORDS), "text/event-stream"),
    "nothing": whole(200, b""),
    "broken JSON": whole(200, completion()[:-20]),
}


async def test_what_came_in_place_of_an_answer_is_said(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A page of a proxy, a compressed answer: whoever reads the error knows where to look."""
    async with serving(tmp_path, engine, None, retry={"max_attempts": 1}) as gateway:
        for name, answer in NO_ANSWERS.items():
            engine.otherwise = telling(answer)
            told = await ask(gateway.port, post(chat(), gateway.key))
            assert told.code == "stream_broken"
            assert f"the answer is not JSON but {name}" in told.json["error"]["message"]
        head = STREAM_HEAD[:-2] + b"content-encoding: gzip\r\n\r\n"
        engine.otherwise = telling(head + framed(gzip.compress(b"".join(WORDS))) + END)
        told = await ask(gateway.port, post(chat(stream=True), gateway.key))
        assert "the answer is not JSON but gzip" in told.json["error"]["message"]


async def test_a_media_type_is_the_same_in_any_case(tmp_path: Path, engine: ScriptedEngine) -> None:
    """`Text/Event-Stream` is a stream."""
    head = STREAM_HEAD.replace(b"text/event-stream", b"Text/Event-Stream")
    async with serving(tmp_path, engine, telling(stream_of(*WORDS, head=head))) as gateway:
        answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
        assert (answer.status, answer.body) == (200, WORDS[0] + WORDS[1] + DONE)


async def test_a_whole_answer_after_a_heartbeat_is_a_stream(tmp_path: Path, engine: ScriptedEngine) -> None:
    """A client that was promised a stream reads the answer in it, however the engine has set it out."""

    async def late(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        while not is_beating:
            await asyncio.sleep(0.01)
        writer.write(whole(200, json.dumps(json.loads(completion()), indent=2).encode()))
        await writer.drain()

    is_beating = False
    pool = {"first_token_timeout_s": 60.0}
    served = serving(tmp_path, engine, late, heartbeat_s=1.0, pool=pool)
    async with served as gateway, RawClient(gateway.port) as client:
        await client.send(post(chat(stream=True), gateway.key))
        await client.head()
        chunks = client.chunks()
        assert await anext(chunks) == b": heartbeat\n\n"
        is_beating = True
        body = b"".join([chunk async for chunk in chunks]).replace(b": heartbeat\n\n", b"")
        first, *rest = body.split(b"\n\n")
        chunk = json.loads(first.removeprefix(b"data: "))
        assert chunk["choices"][0]["delta"]["content"] == "hello there friend"
        assert rest == [b"data: [DONE]", b""]


async def test_pings_are_silence(tmp_path: Path, engine: ScriptedEngine) -> None:
    """What only keeps a line open is no answer: the bound of the first token holds, then that of a stall."""

    async def pinging(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        is_comment, has_begun = b"comment" in request.body, b"begun" in request.body
        writer.write(STREAM_HEAD + (framed(chunk_event("a")) if has_begun else b""))
        while True:
            writer.write(framed(b": ping\n\n" if is_comment else b'event: ping\ndata: {"type": "ping"}\n\n'))
            await writer.drain()
            await asyncio.sleep(0.05)

    async def told(words: str) -> bytes:
        return (await ask(gateway.port, post(chat(words, stream=True), gateway.key))).body

    gateway_keys = {"retry": {"max_attempts": 1}, "resume": {"enabled": False}}
    async with serving(tmp_path, engine, pinging, **gateway_keys) as gateway:
        answers = await asyncio.gather(*map(told, ("comment", "event", "comment begun", "event begun")))
        codes = [json.loads(body.rpartition(b"data: ")[2])["error"]["code"] for body in answers]
        assert codes == ["first_token_timeout"] * 2 + ["stream_stalled"] * 2
        await gateway.wait_idle()


async def test_a_long_prompt_with_pings_is_waited_for(tmp_path: Path, engine: ScriptedEngine) -> None:
    """An engine that computes longer than a stream may be silent, and says so, has its time; another may take over."""

    async def computing(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for _ in range(30):
            writer.write(framed(b": computing\n\n"))
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(b"".join(framed(event) for event in WORDS) + END)
        await writer.drain()

    async with serving(tmp_path, engine, computing, pool={"first_token_timeout_s": 120.0}) as gateway:
        answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
        assert answer.body.replace(b": computing\n\n", b"") == WORDS[0] + WORDS[1] + DONE


async def test_an_engine_that_only_pings_is_failed_over(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Comments that have gone out are no part of an answer: another attempt may still give it whole."""

    async def pinging_once(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        if len(engine.seen) > 1:
            await answer_normally(engine, request, writer)
            return
        writer.write(STREAM_HEAD)
        while True:
            writer.write(framed(b": ping\n\n"))
            await writer.drain()
            await asyncio.sleep(0.05)

    async with serving(tmp_path, engine, pinging_once) as gateway:
        answer = await ask(gateway.port, post(chat(stream=True), gateway.key))
        assert answer.body.replace(b": ping\n\n", b"").endswith(chunk_event(finish="stop") + DONE)
        assert len(engine.seen) == 2
