"""A stream of Anthropic's events that goes on with another engine's: its beginning left out, its usage corrected.

Counterpart: `typed_events.py`, which reads them.
"""

from typing import Any

import msgspec

from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.resumed_stream import ResumedStream
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch
from headrace.gateway.http.sse import event_field


class ResumedMessages(ResumedStream):
    """See `ResumedStream`."""

    def __init__(self, had: Had, seam: Seam) -> None:
        super().__init__(had, seam, TypedEventWatch(), had.text.encode())

    def _text_of(self, kept: bytearray) -> str:
        return kept.decode("utf-8", "replace")

    def _rewritten(self, event: bytes) -> bytes:
        payload = event_field(event, b"data")
        if payload is None:
            return event
        typed: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
        match typed.get("type"):
            case "message_start":
                return b"" if self._had.first_event else event
            case "content_block_start":
                is_text = typed.get("index") == 0 and typed["content_block"].get("type") == "text"
                if not is_text:
                    self.stop_keeping(ResumeBar.TOOLS)
                return b"" if is_text and self._had.is_open else event
            case "content_block_delta" if typed["delta"].get("type") == "text_delta":
                return self._text(self._seam.take(typed["delta"]["text"]))
            case "content_block_stop":
                self.stop_keeping(ResumeBar.FIELD)
                return self._text(self._seam.take("", is_last=True)) + event
            case "message_delta":
                self._is_over = True
                return typed_event({**typed, "usage": self._usage(typed.get("usage") or {})})
            case _:
                return event

    def _text(self, text: str) -> bytes:
        if self._seam.is_stopped:
            self.is_cut_short = self._is_over = True
            usage = {"output_tokens": self._tokens}
            delta = {"stop_reason": "stop_sequence", "stop_sequence": None}
            return (
                typed_event({"type": "content_block_stop", "index": 0})
                + typed_event({"type": "message_delta", "delta": delta, "usage": usage})
                + MESSAGE_STOP
            )
        if not text:
            return b""
        if self.kept is not None:
            self.kept += text.encode()
        delta = {"type": "text_delta", "text": text}
        return typed_event({"type": "content_block_delta", "index": 0, "delta": delta})

    def _usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        if isinstance(usage.get("output_tokens"), int):
            usage["output_tokens"] += self._had.tokens
        if isinstance(usage.get("input_tokens"), int):
            usage["input_tokens"] = max(0, usage["input_tokens"] - self._had.prompt_tokens)
        return usage


def typed_event(body: dict[str, Any]) -> bytes:
    """One event of Anthropic's dialect."""
    return b"event: %b\ndata: %b\n\n" % (body["type"].encode(), msgspec.json.encode(body))


MESSAGE_STOP = typed_event({"type": "message_stop"})
