"""What streams of the Responses and Messages APIs say of themselves."""

import pytest

from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import ResumeBar
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch


def event(payload: bytes, name: bytes = b"x") -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, payload)


def fed(*blocks: bytes) -> tuple[TypedEventWatch, bytes]:
    watch = TypedEventWatch()
    return watch, b"".join([watch.feed(block) for block in blocks])


START = event(b'{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":9,"output_tokens":0}}}')
PIECE = event(b'{"type":"content_block_delta","delta":{"text":"a"}}')
COUNT = event(b'{"type":"message_delta","usage":{"output_tokens":4}}')
STOP = event(b'{"type":"message_stop"}')


def test_anthropics_usage_comes_in_two_parts() -> None:
    """Input at the start, output at the end: the later value of each."""
    watch, passed = fed(START, PIECE, COUNT, STOP)
    assert passed == START + PIECE + COUNT + STOP
    assert watch.usage == TokenUsage(input_tokens=9, output_tokens=4)
    assert (watch.answer_id, watch.output_events, watch.is_done) == ("msg_1", 1, True)


@pytest.mark.parametrize("kind", [b"completed", b"incomplete"])
def test_a_response_ends_in_one_of_two_ways(kind: bytes) -> None:
    """Each is the dialect's own end, with id and usage."""
    usage = b'{"input_tokens":5,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}'
    watch, _ = fed(event(b'{"type":"response.%b","response":{"id":"resp_1","usage":%b}}' % (kind, usage)))
    assert watch.is_done
    assert watch.answer_id == "resp_1"
    assert watch.usage == TokenUsage(input_tokens=5, output_tokens=2, cached_input_tokens=1)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"type":"error","error":{"type":"api_error","message":"dead"}}',
        b'{"type":"error","message":"dead"}',
        b'{"error":{"message":"dead","code":500}}',
    ],
)
def test_an_error_ends_the_stream_in_every_spelling(payload: bytes) -> None:
    """It is kept for us, and nothing after it passes."""
    watch, passed = fed(START, event(payload), PIECE, STOP)
    assert (passed, watch.error, watch.is_done) == (START, payload, False)


def test_an_end_marker_of_the_older_api_passes_only_after_the_end() -> None:
    """`[DONE]` alone is never success in these dialects."""
    done = b"data: [DONE]\n\n"
    assert fed(PIECE, done)[1] == PIECE
    assert fed(STOP + done)[1] == STOP + done
    assert not fed(PIECE, done)[0].is_done


def test_what_is_not_understood_passes() -> None:
    """Pings, comments and odd payloads reach the caller; nothing follows the end."""
    odd = b": ping\n\n" + event(b"{broken") + event(b'{"type":"ping"}')
    assert fed(odd + STOP + PIECE)[1] == odd + STOP


@pytest.mark.parametrize("reason", [b'{"code":"server_error","message":"engine core died"}', b"null"])
def test_a_failed_response_is_an_error(reason: bytes) -> None:
    """`response.failed` ends a stream in order, and is no success."""
    watch, passed = fed(event(b'{"type":"response.failed","response":{"id":"resp_1","error":%b}}' % reason))
    assert (passed, watch.is_done) == (b"", False)
    assert watch.error is not None
    assert (b"engine core died" in watch.error) is (reason != b"null")


def test_a_message_that_stops_without_a_reason_is_an_error() -> None:
    """vLLM sends `message_stop` for an aborted request too, with a stop reason of null."""
    for reason, is_whole in ((b"null", False), (b'"end_turn"', True)):
        delta = event(b'{"type":"message_delta","delta":{"stop_reason":%b},"usage":{"output_tokens":1}}' % reason)
        watch, _ = fed(START, PIECE, delta, event(b'{"type":"message_stop"}'))
        assert (watch.is_done, watch.error is None) == (is_whole, is_whole)


@pytest.mark.parametrize(
    "payload",
    [b'{"type":"content_block_delta","index":0}', b'{"type":"content_block_start","index":0,"content_block":"text"}'],
)
def test_an_event_of_another_shape_passes_and_bars_a_resume(payload: bytes) -> None:
    """Its text is not known, so the stream is not gone on with elsewhere."""
    watch = TypedEventWatch(bar=None)
    assert watch.feed(event(payload)) == event(payload)
    assert watch.had() is ResumeBar.FIELD
