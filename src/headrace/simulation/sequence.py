"""One request inside the engine model, from the queue to its last token."""

from collections.abc import Sequence as TokenSequence
from enum import Enum, auto

from headrace.simulation.outcome import FinishReason
from headrace.simulation.request import SimulatedRequest


class Phase(Enum):
    WAITING = auto()
    LOADING = auto()
    """Its blocks are allocated; KV is on the way from the host or from another engine."""
    PREFILL = auto()
    DECODE = auto()


class LiveSequence:
    """What the scheduler knows of a request that has not ended.

    While it decodes, `emitted` and `kv_tokens` stand still: the decode schedule counts for all sequences at once and
    writes both back when the sequence leaves it.
    """

    __slots__ = (
        "admitted_at_s",
        "allocated_tokens",
        "arrived_at_s",
        "cached_tokens",
        "decode_start",
        "emitted",
        "finish_reason",
        "host_tokens",
        "input_tokens",
        "kv_tokens",
        "order",
        "output_tokens",
        "pace",
        "phase",
        "preemptions",
        "ready_at_s",
        "request",
        "request_id",
        "reserved_tokens",
        "target_tokens",
        "transferred_tokens",
    )

    def __init__(self, request: SimulatedRequest, order: int, arrived_at_s: float, context_tokens: int) -> None:
        self.request = request
        self.request_id = request.request_id
        self.order = order
        """Position among all requests of the engine, by arrival."""
        self.arrived_at_s = arrived_at_s
        self.admitted_at_s: float | None = None
        self.phase = Phase.WAITING
        self.input_tokens = len(request.prompt_tokens)
        room_tokens = context_tokens - self.input_tokens
        limit_tokens = room_tokens if request.max_output_tokens is None else min(request.max_output_tokens, room_tokens)
        if request.is_prefill_only:
            limit_tokens = 1
        self.output_tokens = max(1, min(request.output_tokens, limit_tokens))
        """How many it gets."""
        self.finish_reason = FinishReason.STOP if request.output_tokens <= limit_tokens else FinishReason.LENGTH
        self.reserved_tokens = self.input_tokens + max(1, limit_tokens)
        """The most it may ever hold, as the engine that does not know its length has to assume."""
        self.emitted = 0
        self.kv_tokens = 0
        """Tokens whose KV is computed."""
        self.allocated_tokens = 0
        """Tokens for which it has blocks; more than `kv_tokens` only while it loads."""
        self.target_tokens = self.input_tokens
        """Tokens to compute before it generates; after a preemption its own output as well."""
        self.ready_at_s = 0.0
        self.cached_tokens = 0
        self.host_tokens = 0
        self.transferred_tokens = 0
        self.preemptions = 0
        self.decode_start = 0
        self.pace: TokenSequence[int] | None = None

    @property
    def longest_kv_tokens(self) -> int:
        """Tokens of KV it holds at its end: the last token's KV is never computed."""
        return self.input_tokens + self.output_tokens - 1

    def known_tokens(self, count: int) -> tuple[int, ...]:
        """Return the ids of its first tokens, as many of `count` as are known: the reply's may not be."""
        prompt = self.request.prompt_tokens
        if count <= self.input_tokens:
            return tuple(prompt[:count])
        reply = self.request.reply_tokens
        return tuple(prompt) if reply is None else (*prompt, *reply[: count - self.input_tokens])

    def __repr__(self) -> str:
        return (
            f"<{self.request_id} {self.phase.name} kv {self.kv_tokens}/{self.target_tokens} "
            f"out {self.emitted}/{self.output_tokens}>"
        )
