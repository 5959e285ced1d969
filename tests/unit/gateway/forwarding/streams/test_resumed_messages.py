"""A stream of Anthropic's events that goes on with another engine's: odd events, and what the caller has of it."""

import pytest

from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.resumed_messages import MESSAGE_STOP, ResumedMessages, typed_event

PIECE = typed_event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "upon"}})
ODD = (
    b"{broken",
    b"[1]",
    b'"text"',
    b'{"type":"content_block_start","index":0}',
    b'{"type":"content_block_start","index":0,"content_block":"text"}',
    b'{"type":"content_block_delta","index":0}',
    b'{"type":"content_block_delta","index":0,"delta":null}',
    b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":7}}',
    b'{"type":"message_delta","usage":7}',
)
"""Payloads that are no JSON, or not shaped as the dialect has them."""


def resumed() -> ResumedMessages:
    return ResumedMessages(Had(text="Once ", tokens=2, first_event=b"data: {}\n\n", is_open=True), Seam("Once "))


@pytest.mark.parametrize("payload", ODD)
def test_what_is_not_understood_passes_and_the_stream_goes_on(payload: bytes) -> None:
    """The caller gets the event as it came, and what follows; the stream is not resumed a second time."""
    watch = resumed()
    odd = b"data: " + payload + b"\n\n"
    assert watch.feed(PIECE + odd + PIECE) == PIECE + odd + PIECE
    assert watch.had() is ResumeBar.FIELD or watch.had() == Had(
        text="", tokens=4, first_event=b"data: {}\n\n", is_finished=True
    )


def test_an_older_end_mark_behind_the_end_passes() -> None:
    """Some engines send `[DONE]` after `message_stop`, as in OpenAI's dialect."""
    watch = resumed()
    end = MESSAGE_STOP + b"data: [DONE]\n\n"
    assert watch.feed(PIECE + end) == PIECE + end
    assert watch.is_done


def test_it_can_break_again() -> None:
    """What the caller has is both parts, and the tokens of both."""
    watch = resumed()
    watch.feed(PIECE)
    assert watch.had() == Had(text="Once upon", tokens=3, first_event=b"data: {}\n\n")
