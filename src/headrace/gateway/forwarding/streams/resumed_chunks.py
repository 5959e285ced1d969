"""A stream of chunks that goes on with another engine's: its events in the name of the first, without what the caller
has, its usage corrected. Counterpart: `chunks.py`, which reads them.
"""

from typing import Any

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.chunks import ChunkWatch
from headrace.gateway.forwarding.streams.resumed_stream import ResumedStream
from headrace.gateway.http.sse import event_field

_SAME = ("id", "object", "created", "model", "system_fingerprint")
"""Members that say which answer a chunk belongs to."""
DONE = b"data: [DONE]\n\n"


class ResumedChunks(ResumedStream):
    """See `ResumedStream`."""

    def __init__(self, had: Had, seam: Seam, *, hides_usage: bool, guessed_input_tokens: int | None) -> None:
        super().__init__(had, seam, ChunkWatch(hides_usage=hides_usage), msgspec.json.encode(had.text)[1:-1])
        self._same = identity_of(had.first_event)
        self._guessed_input_tokens = guessed_input_tokens

    def _text_of(self, kept: bytearray) -> str:
        return msgspec.json.decode(b'"%b"' % kept, type=str)

    def _rewritten(self, event: bytes) -> bytes:
        payload = event_field(event, b"data")
        if payload is None or payload.strip() == b"[DONE]":
            return event
        chunk: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
        chunk |= {name: value for name, value in self._same.items() if name in chunk or name != "system_fingerprint"}
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            correct_usage(usage, self._had)  # pyright: ignore[reportUnknownArgumentType]
        if not chunk.get("choices"):
            return _event(chunk)
        return self._with_choice(chunk, chunk["choices"][0], has_usage=usage is not None)

    def _with_choice(self, chunk: dict[str, Any], choice: dict[str, Any], *, has_usage: bool) -> bytes:
        reason = choice.get("finish_reason")
        delta: dict[str, Any] | None = choice.get("delta")
        holder, name = (choice, "text") if delta is None else (delta, "content")
        said: object = holder.get(name) or ""
        if not isinstance(said, str):
            raise TypeError(f"{name} is no text")
        text = self._seam.take(said, is_last=bool(reason))
        if self._seam.is_stopped:
            self.is_cut_short = self._is_over = True
            return closing_events(self._had, "stop", self._guessed_input_tokens, self._tokens)
        keeps_role = False
        if delta is not None:
            keeps_role = bool(delta.get("role")) and not self._had.first_event
            if delta.get("role") and not keeps_role:
                del delta["role"]
            if delta.get("tool_calls") or delta.get("reasoning_content") or delta.get("reasoning"):
                self.stop_keeping(ResumeBar.TOOLS if delta.get("tool_calls") else ResumeBar.REASONING)
                return _event(chunk)
        if text != said:
            holder[name] = text
        self._is_over = self._is_over or bool(reason)
        if text and self.kept is not None:
            self.kept += msgspec.json.encode(text)[1:-1]
        return _event(chunk) if text or reason or has_usage or keeps_role else b""


def identity_of(first_event: bytes) -> dict[str, Any]:
    """What the stream's first event says of the answer it belongs to."""
    try:
        chunk = msgspec.json.decode(event_field(first_event, b"data") or b"{}", type=dict[str, Any])
    except (*UNDECODABLE, ValueError):
        return {}
    return {name: chunk[name] for name in _SAME if name in chunk}


def closing_events(
    had: Had, reason: str | None, guessed_input_tokens: int | None, output_tokens: int | None = None
) -> bytes:
    """What an engine would have sent at the end: the finish reason unless it has come, usage where the caller wants it
    (`guessed_input_tokens` is not None), and the end mark.
    """
    same = identity_of(had.first_event)
    events = b""
    if reason is not None:
        is_chat = same.get("object") != "text_completion"
        piece: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
        events += _event({**same, "choices": [{"index": 0, **piece, "logprobs": None, "finish_reason": reason}]})
    if guessed_input_tokens is not None:
        prompt, completion = guessed_input_tokens, output_tokens or had.tokens
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        events += _event({**same, "choices": [], "usage": {**usage, "estimated": True}})
    return events + DONE


def correct_usage(usage: dict[str, Any], had: Had) -> None:
    """What the caller had is output, though it was a part of the second prompt."""
    prompt, completion, details = usage.get("prompt_tokens"), usage.get("completion_tokens"), _details(usage)
    if isinstance(prompt, int):
        usage["prompt_tokens"] = prompt = max(0, prompt - had.prompt_tokens)
        cached = details.get("cached_tokens")
        if isinstance(cached, int):
            details["cached_tokens"] = min(cached, prompt)
    if isinstance(completion, int):
        usage["completion_tokens"] = completion = completion + had.tokens
    if "total_tokens" in usage and isinstance(prompt, int) and isinstance(completion, int):
        usage["total_tokens"] = prompt + completion


def _details(usage: dict[str, Any]) -> dict[str, Any]:
    return usage.get("prompt_tokens_details") or {}


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"
