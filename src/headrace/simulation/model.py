"""What is modelled: the bounds, memory and timing of one engine replica. Values only; `engine.py` acts on them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class CacheKind(StrEnum):
    """How an engine finds KV that it has computed before."""

    BLOCK_HASH = "block-hash"
    """Full blocks under a chained hash: vLLM, TensorRT-LLM."""
    RADIX = "radix"
    """A tree of token sequences, exact to the page: SGLang."""
    SLOTS = "slots"
    """Each slot keeps the sequence it served last: llama.cpp."""


class AdmissionOrder(StrEnum):
    """Which waiting request starts first."""

    FCFS = "fcfs"
    PRIORITY = "priority"


class StepClock(Protocol):
    """How long one step of the engine takes, given what the step computes. Pure; called once a step."""

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        """Return the duration of a step.

        Units: `prefill_tokens` prompt tokens computed; `prefill_pairs` (query, key) pairs their attention covers;
        `prefill_kv_tokens` tokens of context that their attention reads; `decode_sequences` sequences that
        generate; `decode_tokens` positions these compute (drafts included); `decode_kv_tokens` tokens of context that
        these read, summed over the sequences.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingBounds:
    """What one step may hold, and how many may wait."""

    max_sequences: int
    max_batched_tokens: int
    context_tokens: int
    """Longest prompt plus output."""
    is_prefill_chunked: bool = True
    """False: a prompt that does not fit what is left of the token budget waits for a step of its own."""
    is_prefill_mixed: bool = True
    """False: a step either computes prompts or generates, prompts first (SGLang without mixed chunks)."""
    order: AdmissionOrder = AdmissionOrder.FCFS
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    """Prompt tokens that may wait. None: without bound."""
    reserved_output_ratio: float = 0.0
    """Share of its possible output for which a request must find free KV before it starts: 0 as vLLM (and preempt when
    it runs out), 1 as TensorRT-LLM's GUARANTEED_NO_EVICT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvModel:
    """The KV memory of one replica."""

    total_blocks: int
    block_tokens: int = 16
    """vLLM 16, TensorRT-LLM 32, SGLang 1 (its page size)."""
    kind: CacheKind = CacheKind.BLOCK_HASH
    is_prefix_cached: bool = True
    bytes_per_token: int = 0
    """What one token's KV takes over the whole replica: sizes of transfers and spills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTier:
    """KV that device memory had no room for, kept in host memory."""

    total_blocks: int
    return_bytes_per_s: float
    """How fast spilled KV comes back. Spilling itself is taken to hide behind compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Drafts of the same length for every step; each is accepted if it and all before it match."""

    draft_tokens: int
    acceptance_ratio: float
    """Chance that one draft matches, given that all before it did."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLink:
    """The way by which KV comes from a prefill engine."""

    bytes_per_s: float
    latency_s: float = 0.0

    def transfer_s(self, size_bytes: int) -> float:
        return self.latency_s + size_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineModel:
    """One engine replica."""

    clock: StepClock
    bounds: SchedulingBounds
    kv: KvModel
    host: HostTier | None = None
    speculation: Speculation | None = None
    link: TransferLink = field(default_factory=lambda: TransferLink(bytes_per_s=25e9))
    """Default: one 200 Gbit/s network port."""
    hold_s: float = 30.0
    """How long held KV waits to be fetched. Source: vLLM's NIXL connector, `kv_lease_duration` 30 s."""

    def __post_init__(self) -> None:
        drafts = self.speculation.draft_tokens if self.speculation else 0
        needed_tokens = self.bounds.max_sequences * (1 + drafts)
        if needed_tokens > self.bounds.max_batched_tokens:
            raise ValueError(
                f"max_sequences {self.bounds.max_sequences} x {1 + drafts} tokens a step need a token budget of "
                f"{needed_tokens}; max_batched_tokens is {self.bounds.max_batched_tokens}"
            )
        if not self.bounds.is_prefill_chunked and self.bounds.max_batched_tokens < self.bounds.context_tokens:
            raise ValueError(
                f"without chunked prefill a prompt of {self.bounds.context_tokens} tokens (the context) has to fit one "
                f"step; max_batched_tokens is {self.bounds.max_batched_tokens}"
            )
        if self.host and self.kv.kind is CacheKind.SLOTS:
            raise ValueError(f"a host tier is not modelled for {self.kv.kind}")
