"""Streams recorded from the real engines, cut in every way the network can cut them."""

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.forwarding.streams.chunks import ChunkWatch
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch
from headrace.gateway.forwarding.streams.watch import StreamWatch, Usage
from headrace.gateway.http.sse import EventCutter, iter_events

CAPTURES = Path(__file__).resolve().parents[1] / "captures"
ENGINES = ("llamacpp", "vllm", "sglang")
CHUNKED = sorted(
    f"{engine}/{path.name.removesuffix('.response')}"
    for engine in ENGINES
    for path in (CAPTURES / engine).glob("*_stream*.response")
    if path.read_bytes().rstrip().endswith(b"[DONE]")
)
"""Engine and name of every stream of chunks."""
TYPED = [f"{engine}/{api}_stream" for engine in ENGINES for api in ("messages", "responses")]


def recorded(name: str) -> bytes:
    return (CAPTURES / f"{name}.response").read_bytes()


def watch_of(name: str, *, hides_usage: bool = False) -> StreamWatch:
    return TypedEventWatch() if name in TYPED else ChunkWatch(hides_usage=hides_usage)


def passed_through(stream: bytes, cuts: list[int], watch: StreamWatch) -> bytes:
    """What the caller gets when the stream arrives cut at `cuts`."""
    cutter = EventCutter(1 << 20)
    edges = [0, *sorted(cuts), len(stream)]
    blocks = [cutter.feed(stream[start:end]) for start, end in pairwise(edges)]
    return b"".join(watch.feed(block) for block in blocks if block)


def test_streams_of_tools_and_reasoning_were_recorded() -> None:
    """The replay covers what is hardest to pass on."""
    assert {"llamacpp/tool_call_stream", "llamacpp/reasoning_stream", "llamacpp/chat_stream_unicode"} <= set(CHUNKED)
    assert {"vllm/tool_call_stream", "sglang/tool_call_stream", "sglang/chat_stream_logprobs"} <= set(CHUNKED)


@pytest.mark.parametrize("name", [*CHUNKED, *TYPED])
def test_a_stream_cut_at_any_byte_arrives_unchanged(name: str) -> None:
    """Every single cut, even inside a character or an escape, leaves the caller's bytes as the engine sent them."""
    stream = recorded(name)
    for cut in range(len(stream) + 1):
        watch = watch_of(name)
        assert passed_through(stream, [cut], watch) == stream
        assert watch.is_done
        assert watch.error is None


@pytest.mark.parametrize("name", [*CHUNKED, *TYPED])
def test_a_stream_that_arrives_byte_by_byte_arrives_unchanged(name: str) -> None:
    """The slowest network changes nothing."""
    stream = recorded(name)
    watch = watch_of(name)
    assert passed_through(stream, list(range(1, len(stream))), watch) == stream
    assert watch.has_output
    assert watch.is_done


@given(data=st.data(), name=st.sampled_from(CHUNKED))
@settings(max_examples=100, deadline=None)
def test_what_is_counted_does_not_depend_on_the_cuts(data: st.DataObject, name: str) -> None:
    """Output events and usage are the same however the bytes arrive."""
    stream = recorded(name)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    cut_up, whole = watch_of(name), watch_of(name)
    passed_through(stream, cuts, cut_up)
    passed_through(stream, [], whole)
    assert (cut_up.output_events, cut_up.usage) == (whole.output_events, whole.usage)


@pytest.mark.parametrize("name", [*CHUNKED, *TYPED])
def test_a_stream_that_ends_early_is_never_taken_for_whole(name: str) -> None:
    """Broken off at any byte before its end mark, only whole events passed, and it is not done."""
    stream = recorded(name)
    last_event = len(stream) - len(iter_events(stream)[-1])
    for end in range(0, last_event, 7):
        watch = watch_of(name)
        got = passed_through(stream[:end], [], watch)
        assert not watch.is_done
        assert stream.startswith(got)
        assert got == b"" or got.endswith(b"\n\n")


@pytest.mark.parametrize("engine", ENGINES)
def test_usage_that_only_we_asked_for_is_taken_out(engine: str) -> None:
    """The rest of the stream stays, byte for byte."""
    stream = recorded(f"{engine}/chat_stream_usage")
    watch = watch_of(f"{engine}/chat_stream_usage", hides_usage=True)
    got = passed_through(stream, [], watch)
    assert got == b"".join(event for event in iter_events(stream) if b'"usage"' not in event)
    assert watch.usage is not None
    assert watch.usage.output_tokens == json.loads(stream.split(b"\n\n")[-3][6:])["usage"]["completion_tokens"]


def test_usage_of_several_choices_adds_up() -> None:
    """llama.cpp reports each choice apart; the prompt was read once."""
    watch = watch_of("llamacpp/chat_stream_two_choices")
    passed_through(recorded("llamacpp/chat_stream_two_choices"), [], watch)
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (16, 8)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_usage_of_several_choices_is_in_one_event(engine: str) -> None:
    """vLLM and SGLang report all choices together: counted as they say, and not once per choice."""
    watch = watch_of(f"{engine}/chat_stream_two_choices")
    passed_through(recorded(f"{engine}/chat_stream_two_choices"), [], watch)
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (16, 8)


@pytest.mark.parametrize("step", [1, 7, 997])
def test_an_error_before_the_end_mark_is_seen_however_it_is_cut(step: int) -> None:
    """vLLM whose core was killed sends an error and then the end mark: what was cut is not a whole answer."""
    stream = recorded("vllm/cut_by_kill")
    watch = watch_of("vllm/cut_by_kill")
    passed_through(stream, list(range(step, len(stream), step)), watch)
    assert watch.error is not None
    assert b"EngineCore encountered an issue" in watch.error


@pytest.mark.parametrize("name", ["vllm/cut_by_sigterm", "sglang/cut_by_kill"])
def test_a_stream_that_broke_off_is_not_whole(name: str) -> None:
    """A stream that fell silent at SIGTERM, or lost its connection, has no end mark."""
    watch = watch_of(name)
    passed_through(recorded(name), [], watch)
    assert watch.has_output
    assert not watch.is_done


@pytest.mark.parametrize("engine", ENGINES)
def test_the_whole_prompt_of_a_message_is_counted(engine: str) -> None:
    """At /v1/messages engines leave out of input_tokens what was cached; the ledger has the whole prompt."""
    watch = watch_of(f"{engine}/messages_stream")
    passed_through(recorded(f"{engine}/messages_stream"), [], watch)
    whole = msgspec.convert(json.loads(recorded(f"{engine}/messages"))["usage"], Usage)
    assert watch.usage is not None
    assert watch.usage.input_tokens == whole.counted().input_tokens == 16
