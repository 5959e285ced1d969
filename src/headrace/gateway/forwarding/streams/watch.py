"""The contract of stream watchers, and the table of them."""

from typing import Protocol

import msgspec

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.core.bars import Had, ResumeBar

FAILED_REASONS = frozenset({"abort", "aborted", "error", "cancelled", "timeout"})
"""Finish reasons by which an engine says that it gave up: not an answer. Sources: vllm/v1/engine/__init__.py
(FinishReason), sglang/srt/entrypoints/openai/protocol.py, tensorrt_llm/executor/result.py (`cancelled`, `timeout`)."""

UNFINISHED = b'{"error":{"message":"the stream ended without a finish reason","code":500}}'
"""In place of an engine's error, where a stream has its end mark and no choice, or not every one, was finished."""


def aborted(reason: str | None) -> bytes:
    """An engine's error, where it said so only by a finish reason."""
    return msgspec.json.encode({"error": {"message": f"the engine gave up: finish reason {reason}", "code": 500}})


class StreamWatch(Protocol):
    """Sees whole events in order; says what of them the caller gets.

    Concurrency: one stream. Bytes pass unchanged wherever nothing must be taken out.
    """

    @property
    def has_output(self) -> bool:
        """The first output token has come (not merely a role or a heartbeat)."""
        ...

    @property
    def output_events(self) -> int:
        """Events with output so far; equals tokens where the engine sends one per event."""
        ...

    @property
    def is_done(self) -> bool:
        """The dialect's own end marker has come, and no error before it."""
        ...

    @property
    def is_cut_short(self) -> bool:
        """It is done though the engine goes on: a stop text came that lay across a seam."""
        ...

    @property
    def error(self) -> bytes | None:
        """The engine's in-band error, as the JSON of its event; what followed it was dropped."""
        ...

    @property
    def usage(self) -> TokenUsage | None: ...

    @property
    def answer_id(self) -> str | None:
        """Id of the answer, for dialects whose answers can be continued by id."""
        ...

    @property
    def kept(self) -> bytearray | None:
        """The text so far; None where the stream cannot be resumed, and nothing is kept."""
        ...

    def feed(self, block: bytes) -> bytes:
        """Take whole events; return what goes on to the caller."""
        ...

    def had(self) -> Had | ResumeBar:
        """What the caller has so far, or why a stream in this state cannot be resumed."""
        ...

    def stop_keeping(self, bar: ResumeBar) -> None:
        """Forget the text: the stream is not resumed any more."""
        ...


COUNT_MOST = 2**31 - 1
"""A larger count of tokens is an engine's mistake. Chosen: a thousand times the longest context."""


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """`usage` of any of the dialects: OpenAI's two spellings and Anthropic's."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    input_tokens_details: PromptDetails | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    total_tokens: int | None = None

    def counted(self) -> TokenUsage:
        """In our words; what is no possible count is unknown, and `plausible` says the rest."""
        details = self.prompt_tokens_details or self.input_tokens_details
        cached = details.cached_tokens if details else self.cache_read_input_tokens
        input_tokens = self.prompt_tokens if self.prompt_tokens is not None else self._whole_input()
        output_tokens = self.completion_tokens if self.completion_tokens is not None else self.output_tokens
        # A count must be one that can be: quotas would give back what is below nothing, and no ledger holds any number.
        if input_tokens is not None and not 0 <= input_tokens <= COUNT_MOST:
            input_tokens = None
        if output_tokens is not None and not 0 <= output_tokens <= COUNT_MOST:
            output_tokens = None
        if cached is not None and not 0 <= cached <= COUNT_MOST:
            cached = None
        return TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens, cached_input_tokens=cached)

    def _whole_input(self) -> int | None:
        """Anthropic's `input_tokens` leaves out what was read from the cache or written to it; OpenAI's is the whole.

        Source: recorded answers of llama.cpp b11549, vLLM 0.32.0 and SGLang 0.5.23.
        """
        if self.input_tokens is None:
            return None
        beside = (self.input_tokens, self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0)
        return None if min(beside) < 0 else sum(beside)


def plausible(usage: TokenUsage) -> TokenUsage:
    """What is charged and kept of `usage`, whatever told it: no more is cached than went in.

    Where the input is not known, how much of it was cached is of no use: it would be set against an estimate.
    """
    cached, input_tokens = usage.cached_input_tokens, usage.input_tokens
    if cached is None or (input_tokens is not None and cached <= input_tokens):
        return usage
    return TokenUsage(input_tokens=input_tokens, output_tokens=usage.output_tokens, cached_input_tokens=input_tokens)


_decode_usage = msgspec.json.Decoder(Usage).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_count = msgspec.json.Decoder(int).decode
_decode_text = msgspec.json.Decoder(str).decode
_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "total_tokens",
)


def read_usage(raw: bytes | msgspec.Raw) -> Usage | None:
    """Read `usage` count by count: one that is no whole number is as if it had not been said."""
    try:
        return _decode_usage(raw)
    except UNDECODABLE:
        members = read_members(raw)
    if members is None:
        return None
    usage = Usage()
    for name in _COUNTS:
        setattr(usage, name, _count(members.get(name)))
    usage.prompt_tokens_details = _details(members.get("prompt_tokens_details"))
    usage.input_tokens_details = _details(members.get("input_tokens_details"))
    return usage


def read_members(raw: bytes | msgspec.Raw | None) -> dict[str, msgspec.Raw] | None:
    """Return the members of a JSON object, unread; None where it is none."""
    try:
        return None if raw is None else _decode_members(raw)
    except UNDECODABLE:
        return None


def read_text(raw: msgspec.Raw | None) -> str | None:
    """Return a JSON text; None where it is none."""
    try:
        return None if raw is None else _decode_text(raw)
    except UNDECODABLE:
        return None


def _count(raw: msgspec.Raw | None) -> int | None:
    try:
        return None if raw is None else _decode_count(raw)
    except UNDECODABLE:
        return None


def _details(raw: msgspec.Raw | None) -> PromptDetails | None:
    members = read_members(raw)
    return None if members is None else PromptDetails(_count(members.get("cached_tokens")))


def watch_for(request: InferenceRequest, bar: ResumeBar | None = ResumeBar.OFF) -> StreamWatch:
    """Return the watcher of a stream in the request's dialect; its text is kept where nothing bars it from a resume."""
    # Imported here, not above: the variants import this module for the contract.
    from headrace.gateway.forwarding.streams.chunks import ChunkWatch
    from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch

    if request.dialect in (ApiDialect.CHAT_COMPLETIONS, ApiDialect.COMPLETIONS):
        return ChunkWatch(hides_usage=request.adds_usage, bar=bar)
    return TypedEventWatch(bar=bar)
