"""What the engine model answers: refusals, steps and load."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class RefusalReason(StrEnum):
    QUEUE_FULL = "queue-full"
    CONTEXT_TOO_LONG = "context-too-long"
    KV_TOO_SMALL = "kv-too-small"
    """It would not fit even an empty engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request was not taken: what it asked for, and what the engine has."""

    reason: RefusalReason
    requested: int
    """Tokens (context, KV) or requests and tokens in the queue, this one included."""
    limit: int


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    """A KV transfer was lost, or could not be."""


class Emission(NamedTuple):
    """Tokens that one request gets at the end of a step."""

    request_id: str
    tokens: int
    finish_reason: FinishReason | None


class Ended(NamedTuple):
    """A request that ended, with all the tokens it got."""

    request_id: str
    output_tokens: int
    finish_reason: FinishReason


class FirstToken(NamedTuple):
    """What is known of a request once its first token is computed."""

    request_id: str
    arrived_at_s: float
    admitted_at_s: float
    """When it first left the queue, in the same time as `step(now_s)`."""
    cached_tokens: int
    """Prompt tokens found on the device, on the host or transferred, not computed."""
    host_tokens: int
    transferred_tokens: int


@dataclass(slots=True, kw_only=True)
class Step:
    """One step of the engine: starts when asked for, its emissions are due `duration_s` later."""

    duration_s: float
    emissions: list[Emission] = field(default_factory=list[Emission])
    first_tokens: list[FirstToken] = field(default_factory=list[FirstToken])
    ended: list[Ended] = field(default_factory=list[Ended])
    preempted: list[str] = field(default_factory=list[str])
    prefill_tokens: int = 0
    decode_sequences: int = 0
    is_wait: bool = False
    """Nothing is computed: all that runs waits for KV from a host or another engine. May be cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSnapshot:
    """The engine's load now, and its counters since it started."""

    running: int
    waiting: int
    waiting_tokens: int
    kv_blocks_used: int
    """Held by requests; cached blocks that nobody uses are free."""
    kv_blocks_cached: int
    """Unused blocks whose contents can still be found."""
    kv_blocks_total: int
    kv_blocks_held: int
    """Of those used, waiting for a decode engine to fetch them."""
    host_blocks_used: int
    host_blocks_total: int
    prefix_query_tokens: int
    prefix_hit_tokens: int
    host_hit_tokens: int
    evicted_blocks: int
    preemptions: int
    prompt_tokens: int
    """Prompt tokens of requests that reached their first token."""
    generation_tokens: int
    finished: int
    cancelled: int
    draft_tokens: int
    accepted_tokens: int

    @property
    def kv_utilization_ratio(self) -> float:
        return self.kv_blocks_used / self.kv_blocks_total


def mean_gap_s(first_token_at_s: float | None, ended_at_s: float | None, output_tokens: int) -> float | None:
    """Return the TPOT of a request: its mean gap after the first token; None below two tokens, or before its end."""
    if first_token_at_s is None or ended_at_s is None or output_tokens < 2:
        return None
    return (ended_at_s - first_token_at_s) / (output_tokens - 1)
