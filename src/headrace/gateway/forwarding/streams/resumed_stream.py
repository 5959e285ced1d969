"""What resumed streams of all dialects have in common: whole events in, what the caller does not have yet out.

Counterparts: `resumed_chunks.py`, `resumed_messages.py`, which know their dialect's events.
"""

from abc import ABC, abstractmethod

import msgspec

from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import Had, ResumeBar
from headrace.gateway.forwarding.core.seam import Seam
from headrace.gateway.forwarding.streams.watch import StreamWatch
from headrace.gateway.http.sse import iter_events

MISSHAPEN = (msgspec.MsgspecError, ValueError, RecursionError, LookupError, TypeError, AttributeError)
"""What an event raises that is no JSON, or JSON of another shape than the dialect's."""


class ResumedStream(ABC):
    """See `StreamWatch`. Every event is decoded and written anew: what that costs is paid by resumed streams alone.

    An event that is not understood goes on as it is, as it would in an unbroken stream; the stream is then not resumed
    a second time.
    """

    def __init__(self, had: Had, seam: Seam, inner: StreamWatch, kept: bytes) -> None:
        self._had = had
        self._seam = seam
        self._inner = inner
        self._is_over = False
        """The finish reason has come: only what closes the stream is missing."""
        self.kept: bytearray | None = bytearray(kept)
        self.bar: ResumeBar | None = None
        self.is_cut_short = False
        self.answer_id: str | None = None

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
            try:
                passed.append(self._rewritten(event))
            except MISSHAPEN:
                self.stop_keeping(ResumeBar.FIELD)
                passed.append(event)
            if self.is_cut_short:
                break
        return b"".join(passed)

    def had(self) -> Had | ResumeBar:
        first_event = self._had.first_event
        if self._is_over:
            return Had(text="", tokens=self._tokens, first_event=first_event, is_finished=True)
        if self.kept is None:
            return self.bar or ResumeBar.OFF
        return Had(text=self._text_of(self.kept), tokens=self._tokens, first_event=first_event)

    def stop_keeping(self, bar: ResumeBar) -> None:
        self.kept, self.bar = None, bar

    @property
    def _tokens(self) -> int:
        """Of the answer so far, over all engines."""
        return self._had.tokens + self.output_events

    @abstractmethod
    def _rewritten(self, event: bytes) -> bytes:
        """What the caller gets in place of `event`. Raises: MISSHAPEN."""

    @abstractmethod
    def _text_of(self, kept: bytearray) -> str:
        """The text in `kept`, as this dialect keeps it."""


def corrected(usage: TokenUsage, had: Had) -> TokenUsage:
    """What the caller had is output, though it was a part of the second prompt: for the ledger."""
    prompt, cached = usage.input_tokens, usage.cached_input_tokens
    if prompt is not None:
        prompt = max(0, prompt - had.prompt_tokens)
        cached = None if cached is None else min(cached, prompt)
    return TokenUsage(
        input_tokens=prompt,
        output_tokens=None if usage.output_tokens is None else usage.output_tokens + had.tokens,
        cached_input_tokens=cached,
    )
