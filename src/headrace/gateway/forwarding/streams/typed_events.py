"""Streams of `/v1/responses` and `/v1/messages`: events with a `type`, ended by one of a few terminal types."""

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.streams.watch import (
    UNFINISHED,
    Usage,
    read_members,
    read_text,
    read_usage,
)
from headrace.gateway.http.sse import event_field, iter_events

TERMINAL_TYPES = frozenset({"response.completed", "response.incomplete", "message_stop"})
"""Source: OpenAI API reference, Responses streaming events; Anthropic API reference, streaming messages. The fourth,
`response.failed`, is an error."""
NO_STOP_REASON = (b'"stop_reason":null', b'"stop_reason": null')
OUTPUT_TYPES = frozenset({"content_block_delta"})


class Answer(msgspec.Struct):
    """`response` of a Responses event, `message` of Anthropic's first one."""

    id: str | None = None
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class TypedEvent(msgspec.Struct):
    type: str = ""
    response: Answer | None = None
    message: Answer | str | None = None
    usage: Usage | None = None
    index: int | None = None
    delta: msgspec.Raw = msgspec.Raw(b"null")
    content_block: msgspec.Raw = msgspec.Raw(b"null")


class TextDelta(msgspec.Struct):
    type: str = ""
    text: str = ""


_decode = msgspec.json.Decoder(TypedEvent).decode
_decode_delta = msgspec.json.Decoder(TextDelta).decode


def _read_event(payload: bytes) -> TypedEvent | None:
    """Read one event, member by member where one of them is odd: that one is then as if it had not been said. None:
    it is no object.
    """
    try:
        return _decode(payload)
    except UNDECODABLE:
        members = read_members(payload)
    if members is None:
        return None
    typed = TypedEvent(type=read_text(members.get("type")) or "")
    typed.response, typed.message = _read_answer(members.get("response")), _read_answer(members.get("message"))
    typed.usage = read_usage(members.get("usage", b"null"))
    typed.index = 0 if bytes(members.get("index", b"")) == b"0" else None
    typed.delta = members.get("delta", typed.delta)
    typed.content_block = members.get("content_block", typed.content_block)
    return typed


def _read_answer(raw: msgspec.Raw | None) -> Answer | None:
    members = read_members(raw)
    if members is None:
        return None
    answer = Answer(id=read_text(members.get("id")), usage=read_usage(members.get("usage", b"null")))
    answer.error = members.get("error", answer.error)
    return answer


class TypedEventWatch:
    """See `StreamWatch`. Usage is part of these dialects: nothing is asked for and nothing taken out."""

    __slots__ = (
        "_first_event",
        "_has_stop_reason",
        "_is_aborted",
        "_is_open",
        "answer_id",
        "bar",
        "error",
        "has_output",
        "is_cut_short",
        "is_done",
        "kept",
        "output_events",
        "usage",
    )

    def __init__(self, *, bar: ResumeBar | None = ResumeBar.OFF) -> None:
        self.bar = bar
        self.kept: bytearray | None = bytearray() if bar is None else None
        self._first_event = b""
        self._is_open = False
        """Of Anthropic's dialect: the content block with the text has begun."""
        self._has_stop_reason = False
        self._is_aborted = False
        """The stop reason is null (Anthropic's dialect): vLLM says so of a request that it gave up."""
        self.has_output = False
        self.output_events = 0
        self.is_done = self.is_cut_short = False
        self.error: bytes | None = None
        self.usage: TokenUsage | None = None
        self.answer_id: str | None = None

    def feed(self, block: bytes) -> bytes:
        return b"".join([event for event in iter_events(block) if self._passes(event)])

    def had(self) -> Had | ResumeBar:
        if self._has_stop_reason and not self._is_aborted:
            return Had(text="", tokens=self.output_events, first_event=self._first_event, is_finished=True)
        if self.kept is None:
            return self.bar or ResumeBar.OFF
        text = self.kept.decode("utf-8", "replace")
        return Had(text=text, tokens=self.output_events, first_event=self._first_event, is_open=self._is_open)

    def stop_keeping(self, bar: ResumeBar) -> None:
        self.kept, self.bar = None, bar

    def _passes(self, event: bytes) -> bool:
        if self.error is not None:
            return False
        payload = event_field(event, b"data")
        if payload is None:
            return True
        if payload.strip() == b"[DONE]":  # some engines add OpenAI's older end marker
            return self.is_done
        if self.is_done:
            return False
        typed = _read_event(payload)
        if typed is None:
            self.stop_keeping(ResumeBar.FIELD)
            return True
        if typed.type == "error" or (not typed.type and payload.lstrip().startswith(b'{"error"')):
            self.error = payload
            return False
        if typed.type == "response.failed":
            self._learn(typed)
            self.error = _failure(typed.response)
            return False
        if typed.type == "message_delta":
            self._has_stop_reason = True
            self._is_aborted = any(nothing in payload for nothing in NO_STOP_REASON)
        elif typed.type == "message_stop" and self._is_aborted:
            self.error = UNFINISHED
            return False
        self._learn(typed)
        if self.kept is not None:
            try:
                self._keep(typed, event, self.kept)
            except (*UNDECODABLE, ValueError):  # a delta or block of another shape
                self.stop_keeping(ResumeBar.FIELD)
        return True

    def _keep(self, typed: TypedEvent, event: bytes, kept: bytearray) -> None:
        """Keep the text of a message that has one block of text and nothing else."""
        if typed.type == "message_start":
            self._first_event = event
        elif typed.type == "content_block_start":
            is_text = typed.index == 0 and _decode_delta(typed.content_block).type == "text"
            self._is_open = True
            if not is_text:
                self.stop_keeping(ResumeBar.TOOLS)
        elif typed.type == "content_block_delta":
            delta = _decode_delta(typed.delta)
            kept += delta.text.encode()
            if delta.type != "text_delta":
                self.stop_keeping(ResumeBar.TOOLS)
        elif typed.type == "content_block_stop":
            self.stop_keeping(ResumeBar.FIELD)  # what follows the block, and why it ended, only that engine knows

    def _learn(self, typed: TypedEvent) -> None:
        answer = typed.response or (typed.message if isinstance(typed.message, Answer) else None)
        if answer is not None:
            self.answer_id = answer.id or self.answer_id
            self._add_usage(answer.usage)
        self._add_usage(typed.usage)
        if typed.type in OUTPUT_TYPES or typed.type.endswith(".delta"):
            self.has_output = True
            self.output_events += 1
        if typed.type in TERMINAL_TYPES:
            self.is_done = True

    def _add_usage(self, usage: Usage | None) -> None:
        """Anthropic gives input tokens at the start and output tokens at the end: the later value of each counts."""
        if usage is None:
            return
        later, before = usage.counted(), self.usage
        self.usage = TokenUsage(
            input_tokens=_later(later.input_tokens, before and before.input_tokens),
            output_tokens=_later(later.output_tokens, before and before.output_tokens),
            cached_input_tokens=_later(later.cached_input_tokens, before and before.cached_input_tokens),
        )


def _failure(answer: Answer | None) -> bytes:
    """The error of a `response.failed` event, as engines send errors."""
    reason = answer.error if answer is not None and answer.error != msgspec.Raw(b"null") else None
    return msgspec.json.encode({"error": reason or {"message": "the engine failed to answer", "code": 500}})


def _later(value: int | None, before: int | None) -> int | None:
    return value if value is not None else before
