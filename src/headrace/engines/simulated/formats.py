"""What all answers have in common on the wire: the shape that an engine gives them, their cost, and the Format seam.

The formats are in `openai_formats.py`, `event_formats.py` and `native_formats.py`, one class per API.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

encode_json = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"

Members = Mapping[str, object]


def _none() -> Members:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkShape:
    """Further members that one engine's chat or completion answers have, beside those of OpenAI's API."""

    chunk: Members = field(default_factory=_none)
    """Of every event of a stream."""
    first_chunk: Members = field(default_factory=_none)
    last_chunk: Members = field(default_factory=_none)
    """Of the event before the end mark."""
    choice: Members = field(default_factory=_none)
    """Of every streamed choice but the first of its stream."""
    first_choice: Members = field(default_factory=_none)
    final_choice: Members = field(default_factory=_none)
    """Of the choice with the finish reason, streamed or whole."""
    delta: Members = field(default_factory=_none)
    whole: Members = field(default_factory=_none)
    """Of a whole answer."""
    whole_choice: Members = field(default_factory=_none)
    message: Members = field(default_factory=_none)
    """Of a whole answer's message."""
    usage_rides: bool = False
    """The usage comes with the finish reason."""
    finish_rides: bool = False
    """The finish reason comes with the last token's text, not in an event of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one engine's answers look."""

    chat: ChunkShape = ChunkShape()
    completion: ChunkShape = ChunkShape()
    role_content: str | None = ""
    """`delta.content` of the first chunk, beside the role."""
    tool_content: str | None = None
    """`message.content` of an answer that is a tool call."""
    tool_id_prefix: str = "call_"
    repeats_input_usage: bool = False
    """The last usage of the Messages API's stream counts the prompt, too."""
    has_timings: bool = False
    """llama.cpp's `timings`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What an answer cost, when it ends."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    usage: dict[str, object]
    """As the engine says it in the OpenAI APIs."""
    prefill_s: float = 0.0
    decode_s: float = 0.0

    @property
    def timings(self) -> dict[str, object]:
        computed = self.prompt_tokens - self.cached_tokens
        prompt_ms, predicted_ms = self.prefill_s * 1e3, self.decode_s * 1e3
        return {
            "cache_n": self.cached_tokens,
            "prompt_n": computed,
            "prompt_ms": round(prompt_ms, 3),
            "prompt_per_token_ms": prompt_ms / max(computed, 1),
            "prompt_per_second": computed / self.prefill_s if self.prefill_s else 0.0,
            "predicted_n": self.completion_tokens,
            "predicted_ms": round(predicted_ms, 3),
            "predicted_per_token_ms": predicted_ms / max(self.completion_tokens, 1),
            "predicted_per_second": self.completion_tokens / self.decode_s if self.decode_s else 0.0,
        }


@dataclass(slots=True, kw_only=True)
class Finished:
    """One choice of a whole answer."""

    text: str
    reason: str
    tokens: list[int]
    extra: dict[str, object] = field(default_factory=dict[str, object])
    """Members of the choice that a transfer protocol adds."""


class Format(Protocol):
    """One API's answers to one request."""

    def opening(self, choice: int) -> bytes:
        """Events before a choice's first token."""
        ...

    def around(self, choice: int) -> tuple[bytes, bytes]:
        """What stands before and after a text that needs no escaping, in the event for it."""
        ...

    def delta(self, choice: int, text: str, pieces: Sequence[str]) -> bytes:
        """The event for new text, made of `pieces`, one a token."""
        ...

    def closing(self, choice: int, text: str, reason: str, extra: Mapping[str, object], tally: Tally) -> bytes:
        """Events that end one choice, with its last text; `tally` counts what was sent so far."""
        ...

    def ending(self, tally: Tally, extra: Mapping[str, object]) -> bytes:
        """Events that end the stream."""
        ...

    def whole(self, finished: Sequence[Finished], tally: Tally, extra: Mapping[str, object]) -> dict[str, object]: ...
