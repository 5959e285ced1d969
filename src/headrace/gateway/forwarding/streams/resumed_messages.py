"""A stream of Anthropic's events that goes on with another engine's: its beginning left out, its usage corrected.

Counterpart: `typed_events.py`, which reads them.
"""

from typing import Any

import msgspec

from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.resumed_chunks import corrected
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch
from headrace.gateway.http.sse import event_field, iter_events


class ResumedMessages:
    """See `StreamWatch`."""

    def __init__(self, had: Had, seam: Seam) -> None:
        self._had = had
        self._seam = seam
        self._inner = TypedEventWatch()
        self._is_finished = False
        self.kept: bytearray | None = bytearray(had.text.encode())
        self.bar: ResumeBar | None = None
        self.is_cut_short = False

    @property
    def answer_id(self) -> str | None:
        return None

    @property
    def has_output(self) -> bool:
        return self._inner.has_output

    @property
    def output_events(self) -> int:
        return self._inner.output_events

    @property
    def is_done(self) -> bool:
        return self.is_cut_short or self._inner.is_done

    @property
    def error(self) -> bytes | None:
        return None if self.is_cut_short else self._inner.error

    @property
    def usage(self) -> TokenUsage | None:
        found = self._inner.usage
        return None if found is None else corrected(found, self._had)

    def feed(self, block: bytes) -> bytes:
        passed: list[bytes] = []
        for event in iter_events(self._inner.feed(block)):
            passed.append(self._rewritten(event))
            if self.is_cut_short:
                break
        return b"".join(passed)

    def had(self) -> Had | ResumeBar:
        tokens = self._had.tokens + self.output_events
        if self._is_finished:
            return Had(text="", tokens=tokens, first_event=self._had.first_event, is_finished=True)
        if self.kept is None:
            return self.bar or ResumeBar.OFF
        return Had(text=self.kept.decode("utf-8", "replace"), tokens=tokens, first_event=self._had.first_event)

    def stop_keeping(self, bar: ResumeBar) -> None:
        self.kept, self.bar = None, bar

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
                self._is_finished = True
                return typed_event({**typed, "usage": self._usage(typed.get("usage") or {})})
            case _:
                return event

    def _text(self, text: str) -> bytes:
        if self._seam.is_stopped:
            self.is_cut_short = self._is_finished = True
            usage = {"output_tokens": self._had.tokens + self.output_events}
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
