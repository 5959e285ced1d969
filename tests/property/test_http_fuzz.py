"""Whatever bytes a caller sends: at most one answer per request, well-formed, soon, and the gateway lives on."""

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.harness.raw_client import RawAnswer, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.engines.contract import FieldRule
from headrace.gateway.endpoints.serving import fields_with_rule

FUZZ = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
OWNED = fields_with_rule(FieldRule.OWNED)
SMUGGLING = {
    "length and chunked": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: a\r\n\r\n",
    "two lengths": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n"
    b"content-length: 5\r\n\r\nhello",
    "two codings": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n"
    b"transfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "odd coding": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding list": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n"
    b"0\r\n\r\n",
    "folded header": b"GET /health HTTP/1.1\r\nhost: a\r\nx: b\r\n c\r\n\r\n",
    "space before colon": b"GET /health HTTP/1.1\r\nhost : a\r\n\r\n",
    "bare LF": b"GET /health HTTP/1.1\nhost: a\n\n",
    "bare CR": b"GET /health HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
    "NUL": b"GET /health HTTP/1.1\r\nhost: a\r\nx: \x00\r\n\r\n",
    "negative length": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
    "plus length": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: +4\r\n\r\nabcd",
    "hex length": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 0x4\r\n\r\nabcd",
    "bad chunk size": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "chunk LF": b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    b"3\nabc\r\n0\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "two keys": b"GET /v1/models HTTP/1.1\r\nhost: a\r\nauthorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "unknown version": b"GET /health HTTP/1.7\r\nhost: a\r\n\r\n",
}


class Target:
    """One gateway and one engine for all examples, on a loop that the synchronous tests drive."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.engine = ScriptedEngine()
        self.loop.run_until_complete(self.engine.start())
        limits = {"header_timeout_s": 0.4, "body_timeout_s": 0.4, "idle_timeout_s": 0.4, "body_bytes": 65536}
        declaration = declare({"p": remote_pool(self.engine.url)}, gateway={"limits": limits})
        self.gateway = RunningGateway(folder, declaration)
        self.loop.run_until_complete(self.gateway.start())
        self.loop.run_until_complete(self.gateway.wait_ready())

    def close(self) -> None:
        self.loop.run_until_complete(self.gateway.__aexit__())
        self.loop.run_until_complete(self.engine.stop())
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()

    def send(self, *packets: bytes) -> list[RawAnswer]:
        """Send packets on one connection; return all answers until the gateway closes or falls idle."""
        return self.loop.run_until_complete(self._send(packets))

    async def _send(self, packets: tuple[bytes, ...]) -> list[RawAnswer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        try:
            async with asyncio.timeout(15):  # the gateway's own time-outs are far below
                for packet in packets:
                    writer.write(packet)
                    try:
                        await writer.drain()
                    except ConnectionError:
                        break
                    await asyncio.sleep(0)
                try:
                    received = await reader.read(1 << 22)
                    while more := await reader.read(1 << 22):
                        received += more
                except ConnectionError:
                    received = b""
        finally:
            writer.transport.abort()
        return parse_answers(received)

    def is_alive(self) -> bool:
        status = self.loop.run_until_complete(self.gateway.wait_idle())
        return status.in_flight == 0 and self.gateway.process is not None and self.gateway.process.returncode is None


def parse_answers(received: bytes) -> list[RawAnswer]:
    """Split what was received into answers, strictly: anything left over is a failure."""
    answers: list[RawAnswer] = []
    while received:
        head, separator, received = received.partition(b"\r\n\r\n")
        assert separator, head
        first, *lines = head.decode("latin-1").split("\r\n")
        assert first.startswith("HTTP/1.1 "), first
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body, received = take_chunks(received)
        else:
            length = int(headers.get("content-length", "0"))
            body, received = received[:length], received[length:]
            assert len(body) == length
        status = int(first.split(" ")[1])
        if status != 100:
            answers.append(RawAnswer(status, headers, body))
    return answers


def take_chunks(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        count = int(size, 16)
        body, data = body + data[:count], data[count + 2 :]
        if not count:
            return body, data


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    running = Target(tmp_path_factory.mktemp("fuzz"))
    yield running
    running.close()


def assert_sound(target: Target, answers: list[RawAnswer], *, most: int) -> None:
    """No second answer, no traceback, the error's shape where it is one, and a gateway that lives."""
    assert len(answers) <= most
    for answer in answers:
        assert b"Traceback" not in answer.body
        if answer.status >= 400:
            assert answer.json["error"]["code"] not in ("internal_bug", None)
    assert target.is_alive()


@pytest.mark.parametrize("name", list(SMUGGLING))
def test_smuggling_shapes_get_one_refusal_and_reach_no_engine(target: Target, name: str) -> None:
    """What two parsers could read differently is refused, and the connection ends."""
    before = len(target.engine.seen)
    answers = target.send(SMUGGLING[name])
    assert [answer.status for answer in answers] in ([400], [401], [])  # 401: no key is sent, and the head comes first
    assert_sound(target, answers, most=1)
    assert len(target.engine.seen) == before


@FUZZ
@given(data=st.data())
def test_a_request_with_flipped_bytes_gets_at_most_one_answer(target: Target, data: st.DataObject) -> None:
    """Damage anywhere in head or body."""
    request = bytearray(post(chat("fuzz"), target.gateway.key, connection="close"))
    for _ in range(data.draw(st.integers(1, 4))):
        request[data.draw(st.integers(0, len(request) - 1))] = data.draw(st.integers(0, 255))
    assert_sound(target, target.send(bytes(request)), most=2)


@FUZZ
@given(cuts=st.lists(st.integers(0, 400), max_size=12))
def test_packets_do_not_matter(target: Target, cuts: list[int]) -> None:
    """However a request is cut into packets, it is served once, as it was sent."""
    request = post(chat("packets"), target.gateway.key, connection="close")
    before = len(target.engine.seen)
    edges = sorted({0, len(request), *(cut for cut in cuts if cut < len(request))})
    answers = target.send(*(request[start:end] for start, end in pairwise(edges)))
    assert [answer.status for answer in answers] == [200]
    assert [seen.body for seen in target.engine.seen[before:]] == [request.partition(b"\r\n\r\n")[2]]


@settings(FUZZ, max_examples=25)
@given(end=st.integers(0, 300))
def test_a_request_that_breaks_off_is_never_served(target: Target, end: int) -> None:
    """An incomplete request gets an error or nothing, within its time-out."""
    request = post(chat("truncated"), target.gateway.key)
    before = len(target.engine.seen)
    answers = target.send(request[: min(end, len(request) - 1)])
    assert all(answer.status in (400, 408) for answer in answers)
    assert_sound(target, answers, most=1)
    assert len(target.engine.seen) == before


@FUZZ
@given(noise=st.binary(max_size=300))
def test_noise_gets_at_most_one_error(target: Target, noise: bytes) -> None:
    """Something that is no HTTP at all."""
    answers = target.send(noise + b"\r\n\r\n")
    assert all(answer.status >= 400 for answer in answers)
    assert_sound(target, answers, most=1)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
PLAIN = ["model", "messages", "stream", "max_tokens", "max_completion_tokens", "stream_options", "n", "tools"]
FIELDS = st.sampled_from(PLAIN + sorted(OWNED))


@FUZZ
@given(body=st.dictionaries(FIELDS | st.text(max_size=8), JSON, max_size=8), names_model=st.booleans())
def test_any_json_object_is_answered_and_no_owned_field_passes(
    target: Target, body: dict[str, Any], names_model: bool
) -> None:
    """Whatever the fields hold; what only a gateway may set never reaches an engine."""
    if names_model:
        body = {**body, "model": "m"}
    before = len(target.engine.seen)
    raw = json.dumps(body).encode("utf-8", "surrogatepass")
    answers = target.send(post(raw, target.gateway.key, connection="close"))
    assert len(answers) == 1
    assert_sound(target, answers, most=1)
    for seen in target.engine.seen[before:]:
        assert not OWNED & seen.json.keys()


@FUZZ
@given(raw=st.binary(max_size=200))
def test_any_body_is_answered(target: Target, raw: bytes) -> None:
    """Bodies that are no JSON get one clear refusal."""
    answers = target.send(post(raw, target.gateway.key, connection="close"))
    assert [answer.status for answer in answers] == [400]
    assert_sound(target, answers, most=1)


@pytest.mark.parametrize("piece", [b"[", b'{"a":', b'{"model":"m","messages":['])
def test_a_body_nested_too_deeply_is_refused(target: Target, piece: bytes) -> None:
    """Depth costs a parser its stack; it is refused like any other nonsense."""
    raw = (piece * 20000)[:60000]
    answers = target.send(post(raw, target.gateway.key, connection="close"))
    assert [answer.status for answer in answers] == [400]
    assert_sound(target, answers, most=1)


@pytest.mark.parametrize("field", ["messages", "x"])
def test_a_closed_body_nested_too_deeply_is_answered(target: Target, field: str) -> None:
    """Valid JSON of any depth gets one answer, whoever gives it."""
    raw = b'{"model":"m","%b":' % field.encode() + b"[" * 20000 + b"]" * 20000 + b"}"
    answers = target.send(post(raw, target.gateway.key, connection="close"))
    assert len(answers) == 1
    assert_sound(target, answers, most=1)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"m","messages":[],"messages":[]}',
        b'{"model":"m", "model":"m"}',
        b'{"model":"m","mod\\u0065l":"m"}',
        b'{"n":1,"model":"m","x":{"n":2},"n":1}',
    ],
)
def test_a_field_named_twice_is_refused(target: Target, raw: bytes) -> None:
    """Compact, spaced, or hidden behind an escape."""
    (answer,) = target.send(post(raw, target.gateway.key, connection="close"))
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert "twice" in answer.json["error"]["message"]
