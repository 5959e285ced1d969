"""Streams of `/v1/chat/completions` and `/v1/completions`: `data: {chunk}` events, ended by `data: [DONE]`."""

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.streams.chunk import Choice, read_chunk
from headrace.gateway.forwarding.streams.watch import FAILED_REASONS, UNFINISHED, aborted
from headrace.gateway.http.sse import event_field, iter_events

_decode_text = msgspec.json.Decoder(str).decode
LEARNING_EVENTS = 16
"""Output events between two looks at what a plain event looks like: bounds what learning in vain costs. Chosen."""
_NULL_USAGE = (b',"usage":null', b', "usage": null')


class ChunkWatch:
    """See `StreamWatch`. `hides_usage`: we asked for usage, the caller did not, so it goes out again.

    `bar`: why the stream's text is not kept for a resume; None: it is.
    1. Nearly every block is one event that differs from an earlier one in nothing but its text: the bytes before and
       after are compared, and the text between them holds no quote, so that it ends where it seems to.
    2. So are several of them in one block, and texts with escaped quotes.
    3. Other blocks of a stream whose text is not kept are searched: output has begun and nothing in the block can be
       an end, an error, a finish, usage, or a piece without output (the role of another choice, empty text). A marker
       inside generated text is escaped in JSON, or at worst takes the long way.
    4. The long way: every event is decoded.
    """

    __slots__ = (
        "_begun",
        "_finished",
        "_first_event",
        "_head",
        "_hides_usage",
        "_is_usage_final",
        "_learns_from",
        "_tail",
        "_text_at",
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

    def __init__(self, *, hides_usage: bool, bar: ResumeBar | None = ResumeBar.OFF) -> None:
        self._hides_usage = hides_usage
        self.bar = bar
        self.kept: bytearray | None = bytearray() if bar is None else None
        self._first_event = b""
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        """Indexes of choices. One that has begun and not finished at the end mark was cut: vLLM sends it even so."""
        self._is_usage_final = False
        self._head = self._tail = b""
        """What a plain event of this stream has before and after its text; empty while none has been seen."""
        self._text_at = 0
        self._learns_from = 0
        """So many output events must have come before the look of a plain event is learned anew."""
        self.has_output = False
        self.output_events = 0
        self.is_done = self.is_cut_short = False
        self.error: bytes | None = None
        self.usage: TokenUsage | None = None
        self.answer_id: str | None = None

    def feed(self, block: bytes) -> bytes:
        kept = self.kept
        if self._text_at and block.startswith(self._head) and block.endswith(self._tail):
            text = block[self._text_at : -len(self._tail)]
            if text and b'"' not in text:
                self.output_events += 1
                if kept is not None:
                    kept += text
                return block
            if text and self._are_plain(text, kept):
                return block
        return self._feed_other(block)

    def had(self) -> Had | ResumeBar:
        if self._finished and not self._begun - self._finished:
            return Had(text="", tokens=self.output_events, first_event=self._first_event, is_finished=True)
        if self.kept is None:
            return self.bar or ResumeBar.OFF
        try:
            text = _decode_text(b'"%b"' % bytes(self.kept))
        except UNDECODABLE:  # half an escaped character: no engine is known to send it
            return ResumeBar.FIELD
        return Had(text=text, tokens=self.output_events, first_event=self._first_event)

    def stop_keeping(self, bar: ResumeBar) -> None:
        self.kept, self.bar = None, bar

    def _are_plain(self, text: bytes, kept: bytearray | None) -> bool:
        """One plain event with escaped quotes, or several that arrived together, of which `text` is all between the
        first text and the last.
        """
        texts = text.split(self._tail + self._head)
        joined = text if len(texts) == 1 else b"".join(texts)
        if b'"' in joined.replace(b"\\\\", b"").replace(b'\\"', b"") or not all(texts):
            return False
        self.output_events += len(texts)
        if kept is not None:
            kept += joined
        return True

    def _feed_other(self, block: bytes) -> bytes:
        if (
            self.has_output
            and self.kept is None
            and b'"usage"' not in block
            and b"[DONE]" not in block
            and b'"error"' not in block
            and b'finish_reason":"' not in block
            and b'finish_reason": "' not in block
            and b'"role":"' not in block
            and b'"role": "' not in block
            and b'""' not in block
            and b'"delta"' in block
            and not self.is_done
            and self.error is None
        ):
            events = block.count(b"\n\n") or block.count(b"\n\r\n")
            self.output_events += events
            if events == 1:
                self._learn(block)
            return block
        passed = b"".join([event for event in iter_events(block) if self._passes(event)])
        if self.is_done or self.error is not None:
            self._text_at = 0  # nothing that follows may pass
        if self._hides_usage:
            for text in _NULL_USAGE:
                passed = passed.replace(text, b"") if text in passed else passed
        return passed

    def _add_usage(self, usage: TokenUsage, *, is_final: bool) -> None:
        """Most engines send usage once. llama.cpp sends one final event per choice: their outputs add up.

        Source: recorded from llama.cpp b11549 with `n: 2`, tests/captures/llamacpp/chat_stream_two_choices.
        """
        before = self.usage if self._is_usage_final else None
        self._is_usage_final = is_final
        if before is None or before.output_tokens is None or usage.output_tokens is None:
            self.usage = usage
            return
        self.usage = TokenUsage(
            input_tokens=usage.input_tokens,
            output_tokens=before.output_tokens + usage.output_tokens,
            cached_input_tokens=usage.cached_input_tokens,
        )

    def _passes(self, event: bytes) -> bool:
        if self.is_done or self.error is not None:
            return False
        payload = event_field(event, b"data")
        if payload is None:  # a comment: the engine's own keep-alive
            error = event_field(event, b"error")  # llama.cpp has sent `error: {...}` events
            self.error = error
            return error is None
        if payload.strip() == b"[DONE]":
            if not self._finished or self._begun - self._finished:
                self.error = UNFINISHED
                return False
            self.is_done = True
            return True
        chunk = read_chunk(payload)
        if chunk is None:
            self.stop_keeping(ResumeBar.FIELD)
            return True  # not ours to judge: the caller gets what the engine said
        if bytes(chunk.error) != b"null" or chunk.object == "error":  # SGLang and TensorRT-LLM have flat ones too
            self.error = payload
            return False
        if chunk.usage is not None:
            self._add_usage(chunk.usage.counted(), is_final=not chunk.choices)
            if self._hides_usage and not chunk.choices:
                return False
        has_output = False
        for choice in chunk.choices or ():
            if choice.finish_reason in FAILED_REASONS:
                self.error = aborted(choice.finish_reason)
                return False
            self._begun.add(choice.index)
            if choice.finish_reason:
                self._finished.add(choice.index)
            has_output |= choice.has_output
            if self.kept is not None:
                self._keep(choice, self.kept)
        if chunk.choices and not self._first_event:
            self._first_event = event
        if has_output:
            self.has_output = True
            self.output_events += 1
            if chunk.usage is None and not self._finished:
                self._learn(event)
        return True

    def _keep(self, choice: Choice, kept: bytearray) -> None:
        bar = choice.bar
        if bar is not None:
            self.stop_keeping(bar)
            return
        text = choice.text or (choice.delta.content if choice.delta is not None else None)
        if text:
            kept += msgspec.json.encode(text)[1:-1]

    def _learn(self, event: bytes) -> None:
        """Remember how an event with output and nothing else looks; now and then, as some engines date each one."""
        if self.output_events < self._learns_from:
            return
        self._learns_from = self.output_events + LEARNING_EVENTS
        for key in (b'"content":"', b'"text":"', b'"content": "', b'"text": "'):
            start = event.find(key) + len(key)
            end = event.find(b'"', start)
            if start >= len(key) and end > start and b"\\" not in event[start:end] and b'"usage"' not in event:
                self._head, self._tail, self._text_at = event[:start], event[end:], start
                return
