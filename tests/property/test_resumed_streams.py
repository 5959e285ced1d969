"""Streams recorded from the real engines, broken at every byte and gone on with: before and after are the whole.

The part after a cut is made of the recording itself: an engine that goes on says what the recording says from there on,
under a name of its own, with its own beginning, and cut into pieces of its own.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.chunks import ChunkWatch
from headrace.gateway.forwarding.streams.resumed_chunks import ResumedChunks, closing_events
from headrace.gateway.forwarding.streams.resumed_messages import MESSAGE_STOP, ResumedMessages
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch
from headrace.gateway.http.sse import EventCutter, iter_events

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
ENGINES = ("llamacpp", "vllm", "sglang")
PLAIN = ("chat_stream", "chat_stream_length", "chat_stream_unicode", "chat_stream_usage", "completion_stream_usage")
CHUNKED = [f"{engine}/{name}" for engine in ENGINES for name in PLAIN]
MESSAGES = [f"{engine}/messages_stream" for engine in ENGINES]
BARRED = {
    "tool_call_stream": {ResumeBar.TOOLS},
    "chat_stream_two_choices": {ResumeBar.CHOICES},
    "reasoning_stream": {ResumeBar.REASONING},
}


def recorded(name: str) -> bytes:
    return (CAPTURES / f"{name}.response").read_bytes()


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    payloads = [event.strip().removeprefix(b"data: ") for event in iter_events(stream)]
    return [json.loads(payload) for payload in payloads if payload not in (b"", b"[DONE]")]


def text_of(chunk: dict[str, Any]) -> str:
    if not chunk["choices"]:
        return ""
    choice = chunk["choices"][0]
    return (choice["delta"].get("content") if "delta" in choice else choice["text"]) or ""


def whole_text(stream: bytes) -> str:
    return "".join(text_of(chunk) for chunk in chunks_of(stream))


def rest_of(stream: bytes, had_text: str, pieces: int) -> bytes:
    """What an engine that goes on after `had_text` would send: text in other pieces, the recording's end."""
    chunks = chunks_of(stream)
    rest = whole_text(stream)[len(had_text) :]
    model = next(chunk for chunk in chunks if text_of(chunk))
    head = [chunk for chunk in chunks if not text_of(chunk)][: "delta" in model["choices"][0]]
    size = max(1, len(rest) // pieces)
    events: list[dict[str, Any]] = list(head)
    for at in range(0, len(rest), size):
        choice = json.loads(json.dumps(model["choices"][0])) | {"finish_reason": None}
        if "delta" in choice:
            choice["delta"]["content"] = rest[at : at + size]
        else:
            choice["text"] = rest[at : at + size]
        events.append({**model, "choices": [choice]} | ({"usage": None} if "usage" in model else {}))
    end = next(at for at, chunk in enumerate(chunks) if chunk["choices"] and chunk["choices"][0]["finish_reason"])
    last = json.loads(json.dumps(chunks[end]))
    if text_of(last):
        last["choices"][0].get("delta", last["choices"][0])["content" if "delta" in last["choices"][0] else "text"] = ""
    events += [last, *chunks[end + 1 :]]
    renamed = [{**chunk, "id": "another", "created": 1} for chunk in events]
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in renamed) + b"data: [DONE]\n\n"


def broken_at(stream: bytes, cut: int) -> tuple[bytes, Had]:
    """What the caller got of a stream that broke at a byte, and what is known of it."""
    watch, cutter = ChunkWatch(hides_usage=False, bar=None), EventCutter(1 << 20)
    block = cutter.feed(stream[:cut])
    got = watch.feed(block) if block else b""
    had = watch.had()
    assert isinstance(had, Had), had
    return got, had


def assert_is_one(got: bytes, whole: bytes) -> None:
    """One answer: the same text, one role, one end, one name."""
    chunks, expected = chunks_of(got), chunks_of(whole)
    assert whole_text(got) == whole_text(whole)
    assert {(chunk["id"], chunk["model"], chunk["object"]) for chunk in chunks} == {
        (expected[0]["id"], expected[0]["model"], expected[0]["object"])
    }
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert len(reasons) == 1
    roles = [choice for chunk in chunks for choice in chunk["choices"] if choice.get("delta", {}).get("role")]
    assert len(roles) == len([c for chunk in expected for c in chunk["choices"] if c.get("delta", {}).get("role")])
    assert got.endswith(b"data: [DONE]\n\n")
    assert got.count(b"[DONE]") == 1


@pytest.mark.parametrize("name", CHUNKED)
def test_broken_at_any_byte_the_two_parts_are_the_whole(name: str) -> None:
    """No token lost, doubled or out of order, whichever byte was the last."""
    stream = recorded(name)
    seen: set[bytes] = set()
    for cut in range(len(stream) + 1):
        got, had = broken_at(stream, cut)
        if got in seen or got.endswith(b"[DONE]\n\n"):
            continue
        seen.add(got)
        if had.is_finished:
            assert_is_one(got + closing_events(had, None, None), stream)
            continue
        if not got:
            continue  # the caller has nothing: the request is made anew
        assert had.text == whole_text(got)
        watch = ResumedChunks(had, Seam(had.text), hides_usage=False, guessed_input_tokens=None)
        assert_is_one(got + watch.feed(rest_of(stream, had.text, 5)), stream)
        assert watch.is_done
    assert len(seen) > 5


@given(data=st.data(), name=st.sampled_from(CHUNKED))
@settings(max_examples=60, deadline=None)
def test_broken_again_and_again_and_arriving_in_any_pieces(data: st.DataObject, name: str) -> None:
    """Several breaks, white space said again, and the network's own cuts change nothing."""
    stream = recorded(name)
    first_event_end = stream.index(b"\n\n") + 2
    got, had = broken_at(stream, data.draw(st.integers(first_event_end, len(stream) - 1)))
    for _ in range(data.draw(st.integers(1, 3))):
        if had.is_finished:
            break
        again = had.text[len(had.text.rstrip()) :] if data.draw(st.booleans()) else ""
        rest = rest_of(stream, had.text.removesuffix(again), data.draw(st.integers(1, 30)))
        watch = ResumedChunks(had, Seam(had.text, expected=again), hides_usage=False, guessed_input_tokens=None)
        cutter = EventCutter(1 << 20)
        end = data.draw(st.integers(0, len(rest)))
        cuts = [0, *sorted(data.draw(st.lists(st.integers(0, end), max_size=8))), end]
        for start, stop in pairwise(cuts):
            block = cutter.feed(rest[start:stop])
            got += watch.feed(block) if block else b""
        if watch.is_done:
            break
        found = watch.had()
        assert isinstance(found, Had)
        had = found
        assert had.is_finished or had.text == whole_text(got)
    if not got.endswith(b"[DONE]\n\n"):
        if had.is_finished:
            got += closing_events(had, None, None)
        else:
            watch = ResumedChunks(had, Seam(had.text), hides_usage=False, guessed_input_tokens=None)
            got += watch.feed(rest_of(stream, had.text, 3))
    assert_is_one(got, stream)


@given(text=st.text(min_size=1), cuts=st.lists(st.integers(0, 200), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_text_is_kept_as_it_was_sent(text: str, cuts: list[int]) -> None:
    """Quotes, escapes, other planes and control characters: what is kept is what the caller has."""
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    events = [
        b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        + msgspec.json.encode({"content": piece})
        + b',"finish_reason":null}]}\n\n'
        for piece in pieces
    ]
    for blocks in (events, [b"".join(events)], [b"".join(events[:3]), b"".join(events[3:])]):
        watch = ChunkWatch(hides_usage=False, bar=None)
        assert b"".join(watch.feed(block) for block in blocks) == b"".join(events)
        had = watch.had()
        assert isinstance(had, Had)
        assert (had.text, had.tokens) == (text, len(pieces))


@pytest.mark.parametrize("name", BARRED)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_parser_hides_is_not_gone_on_with(engine: str, name: str) -> None:
    """Once a tool is called, a second choice begun or reasoning shown, the stream is not resumable any more."""
    path = CAPTURES / engine / f"{name}.response"
    if not path.exists():
        pytest.skip(f"{engine} was not recorded")
    watch = ChunkWatch(hides_usage=False, bar=None)
    watch.feed(b"".join(iter_events(path.read_bytes())[:-3]))
    assert watch.had() in BARRED[name] or watch.bar in BARRED[name]
    assert watch.kept is None


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_broken_at_any_event_is_one_message(name: str) -> None:
    """Anthropic's events: one start, one block, one end, whichever event was the last before the break."""
    stream = recorded(name)
    events = iter_events(stream)
    for count in range(1, len(events)):
        watch = TypedEventWatch(bar=None)
        got = watch.feed(b"".join(events[:count]))
        had = watch.had()
        if isinstance(had, ResumeBar):
            assert b"content_block_stop" in events[count - 1]
            continue
        if had.is_finished:
            assert got + MESSAGE_STOP == stream
            continue
        deltas = [event for event in events if b"content_block_delta" in event]
        rest = [*events[:2], *deltas[had.tokens :], *events[2 + len(deltas) :]]
        resumed = ResumedMessages(had, Seam(had.text))
        got += resumed.feed(b"".join(rest))
        assert resumed.is_done
        assert _said(got) == _said(stream)
        assert [_type(event) for event in iter_events(got)] == [_type(event) for event in events]


def _payload(event: bytes) -> dict[str, Any]:
    return json.loads(event.split(b"data: ", 1)[1])


def _type(event: bytes) -> str:
    return _payload(event)["type"]


def _said(stream: bytes) -> str:
    deltas = [_payload(event).get("delta", {}) for event in iter_events(stream)]
    return "".join(delta.get("text", "") for delta in deltas)
