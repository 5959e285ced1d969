"""What a simulated engine counts about its requests, for its metrics. Seconds are real ones, as callers see them."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.simulation.outcome import LoadSnapshot

SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
LONG_SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
GAPS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
"""Bucket bounds. Source: a page of vLLM 0.32.0's /metrics; the other engines' differ in places."""


class Histogram:
    """Counts by bucket, as Prometheus wants them."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.sum += value * times


@dataclass(slots=True, kw_only=True)
class RequestTimes:
    """When one sequence reached what, in real monotonic seconds; None: not yet."""

    arrived_at_s: float
    admitted_at_s: float | None = None
    first_token_at_s: float | None = None
    last_token_at_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


def _seconds() -> Histogram:
    return Histogram(SECONDS)


def _long_seconds() -> Histogram:
    return Histogram(LONG_SECONDS)


def _gaps() -> Histogram:
    return Histogram(GAPS)


def _tokens() -> Histogram:
    return Histogram(TOKENS)


@dataclass(slots=True)
class ServerStats:
    """Histograms and counters since the start."""

    ttft: Histogram = field(default_factory=_seconds)
    itl: Histogram = field(default_factory=_gaps)
    tpot: Histogram = field(default_factory=_gaps)
    e2e: Histogram = field(default_factory=_long_seconds)
    queue: Histogram = field(default_factory=_long_seconds)
    prefill: Histogram = field(default_factory=_long_seconds)
    decode: Histogram = field(default_factory=_long_seconds)
    inference: Histogram = field(default_factory=_long_seconds)
    prompt_tokens: Histogram = field(default_factory=_tokens)
    output_tokens: Histogram = field(default_factory=_tokens)
    step_tokens: Histogram = field(default_factory=_tokens)
    choices: Histogram = field(default_factory=lambda: Histogram((1, 2, 5, 10, 20)))
    transfer: Histogram = field(default_factory=_seconds)
    transfer_bytes: Histogram = field(default_factory=lambda: Histogram(tuple(2.0**n for n in range(20, 40, 2))))
    finished: dict[str, int] = field(default_factory=dict[str, int])
    """By reason: stop, length, abort, error."""
    requests: int = 0
    refused: int = 0
    aborted: int = 0
    failed: int = 0
    transfer_failures: int = 0
    transferred_tokens: int = 0
    decode_steps: int = 0
    """Sequence-steps that generated."""
    slot_steps: int = 0
    """Steps of the engine that generated."""
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def finish(self, times: RequestTimes, reason: str) -> None:
        """Count one sequence that ended by itself."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        first, admitted = times.first_token_at_s, times.admitted_at_s
        self.e2e.observe(times.last_token_at_s - times.arrived_at_s)
        self.prompt_tokens.observe(times.prompt_tokens)
        self.output_tokens.observe(times.output_tokens)
        if first is None or admitted is None:
            return
        self.queue.observe(admitted - times.arrived_at_s)
        self.prefill.observe(first - admitted)
        self.decode.observe(times.last_token_at_s - first)
        self.inference.observe(times.last_token_at_s - admitted)
        self.prefill_s += first - admitted
        self.decode_s += times.last_token_at_s - first
        if times.output_tokens > 1:
            self.tpot.observe((times.last_token_at_s - first) / (times.output_tokens - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsView:
    """What a page of metrics is made of."""

    load: LoadSnapshot
    stats: ServerStats
    model: str
    engine_type: str
    """SGLang's label: unified, prefill or decode."""
    context_tokens: int
    block_tokens: int
    kv_dtype: str
    max_sequences: int
    uptime_s: float
    started_at_s: float
    """UTC epoch seconds."""
    generation_tokens_per_s: float
    has_transfer: bool
    iterations: int

    @property
    def kv_tokens_total(self) -> int:
        return self.load.kv_blocks_total * self.block_tokens

    @property
    def prefix_hit_ratio(self) -> float:
        queries = self.load.prefix_query_tokens
        return self.load.prefix_hit_tokens / queries if queries else 0.0
