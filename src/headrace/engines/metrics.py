"""What an engine's own metrics are called, by purpose: the words in which headrace asks, and the shape of each answer.

Tables are in `engines/<engine>/metrics.py`; `load.py` reads a page of `/metrics` by them, and `headrace engine verify`
compares them with the engine that is installed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Purpose(StrEnum):
    """What a metric is read for. The unit is that of what `load.py` returns, whatever the engine's own unit is."""

    RUNNING = "running"
    """Requests in the batch now."""
    WAITING = "waiting"
    """Requests accepted by the engine and not in the batch."""
    KV_UTILIZATION = "kv-utilization"
    """Share of the KV cache in use, 0..1; what may be evicted at once does not count as used."""
    KV_CAPACITY = "kv-capacity"
    """Size of the KV cache, in tokens."""
    PREFIX_QUERIES = "prefix-queries"
    """Prompt tokens looked up in the prefix cache."""
    PREFIX_HITS = "prefix-hits"
    """Of these, found."""
    PREFIX_HIT_RATIO = "prefix-hit-ratio"
    """The engine's own hit rate, 0..1, over a window of its choice; prefer hits over queries where both exist."""
    CACHED_TOKENS = "cached-tokens"
    """Prompt tokens served from a cache, by source (device, host, disk, another instance)."""
    TTFT = "ttft"
    """Time to the first token, in seconds, as the engine sees it."""
    ITL = "itl"
    """Gap between two tokens, in seconds."""
    TPOT = "tpot"
    """Mean time per output token of a request after the first, in seconds."""
    E2E = "e2e"
    """Time from arrival to the last token, in seconds, as the engine sees it."""
    QUEUE_TIME = "queue-time"
    """Seconds a request waited in the engine's queue."""
    PREFILL_TIME = "prefill-time"
    """Seconds of prompt processing."""
    DECODE_TIME = "decode-time"
    """Seconds from the first to the last token."""
    TOKENS_IN = "tokens-in"
    """Prompt tokens of requests, cached ones included."""
    TOKENS_OUT = "tokens-out"
    """Tokens generated."""
    PREEMPTIONS = "preemptions"
    """Requests taken out of the batch for want of KV memory."""
    EVICTIONS = "evictions"
    """Tokens of KV evicted from the device."""
    SUCCEEDED = "succeeded"
    """Requests finished, by reason where the engine says it."""
    FAILED = "failed"
    """Requests that ended in an error or were aborted, where the engine counts them."""
    REFUSED = "refused"
    """Requests turned away at a queue bound."""
    CONFIG = "config"
    """Settings in force, as labels."""
    KV_TRANSFER_TIME = "kv-transfer-time"
    """Seconds of one KV transfer between prefill and decode."""
    KV_TRANSFER_BYTES = "kv-transfer-bytes"
    """Bytes of one such transfer."""
    KV_TRANSFER_FAILURES = "kv-transfer-failures"
    """Transfers that failed, expired ones included."""
    KV_TRANSFER_WAITING = "kv-transfer-waiting"
    """Requests that wait for a transfer, by stage."""
    OFFLOAD_HITS = "offload-hits"
    """Prompt tokens found in a tier below the device."""
    OFFLOAD_UTILIZATION = "offload-utilization"
    """Share of the host tier in use, 0..1."""
    OFFLOAD_RETURN_TIME = "offload-return-time"
    """Seconds of bringing KV back to the device."""
    OFFLOAD_RETURN_BYTES = "offload-return-bytes"
    """Bytes brought back."""
    OFFLOAD_STORED_BYTES = "offload-stored-bytes"
    """Bytes written to a lower tier."""
    OFFLOAD_EVICTIONS = "offload-evictions"
    """Tokens or stores that a lower tier dropped or would not take."""
    DRAFT_TOKENS = "draft-tokens"
    """Tokens proposed by speculative decoding."""
    ACCEPTED_TOKENS = "accepted-tokens"
    """Of these, accepted."""
    ACCEPTANCE_RATIO = "acceptance-ratio"
    """The engine's own acceptance rate, 0..1."""


class MetricType(StrEnum):
    """The type an engine's page declares."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    LABELS = "labels"
    """A gauge of 1 whose labels are the answer."""


class Combine(StrEnum):
    """How several series of one metric become one number."""

    SUM = "sum"
    MAX = "max"
    """The fullest of several caches is the one that makes requests wait."""
    MEAN = "mean"
    LABEL_SUM = "label-sum"
    """The number stands in a label (vLLM's size of the KV cache); summed over series."""


class Appears(StrEnum):
    """When a metric is on the page at all."""

    AT_START = "at start"
    AFTER_TRAFFIC = "after the first request"
    WITH_FEATURE = "with a feature"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetric:
    """One name an engine uses for one purpose. Several rows of a purpose are alternatives, the preferred one first."""

    purpose: Purpose
    name: str
    """As the page spells it: counters with `_total`, histograms without suffix."""
    type: MetricType
    source: str
    """The engine's file that defines it."""
    unit: str = ""
    """The engine's own unit."""
    combine: Combine = Combine.SUM
    replicas: tuple[str, ...] = ()
    """Labels that number copies of the same value (ranks of one tensor-parallel group): of these the largest counts,
    and only what is left is combined."""
    total_where: tuple[str, str] | None = None
    """A label and the value that marks the total, where an engine also gives parts of it: others are left out."""
    only_where: tuple[str, frozenset[str]] | None = None
    """A label and the values that count for this purpose; series with others are left out."""
    not_where: tuple[str, frozenset[str]] | None = None
    """A label and the values that do not count, where the others are many or change with the version."""
    by: str | None = None
    """The label that splits the number, such as `source` or `finished_reason`."""
    plus: tuple[str, ...] = ()
    """Other metrics to be added to make the purpose's number."""
    over: str | None = None
    """Another metric to divide by, where an engine gives a share as two numbers."""
    label: str | None = None
    """For LABEL_SUM: the label that holds the number."""
    scale: float = 1.0
    """From the engine's unit to that of the purpose."""
    appears: Appears = Appears.AT_START
    feature: str | None = None
    """What must be on for it to appear."""
    since: str | None = None
    """Oldest version in which it was read."""
    until: str | None = None
    """Newest version that still has it; None: the version of the table."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that is looked for."""
        return (self.name, *self.plus, *([] if self.over is None else [self.over]))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricTable:
    """An engine's metrics by purpose."""

    path: str
    """Where the engine serves them. Only this path is ever read: TensorRT-LLM's `/metrics` is consumed by reading."""
    version: str
    """The engine's version whose source or page was read."""
    enabled_by: str
    """What turns the page on; empty where it is always on."""
    metrics: tuple[EngineMetric, ...]
    lacking: tuple[tuple[Purpose, str], ...] = ()
    """Purposes the engine has no metric for, and why or what to use instead."""

    def for_purpose(self, purpose: Purpose, version: str | None = None) -> tuple[EngineMetric, ...]:
        """Return the names for `purpose` that apply to `version` (every version where None), preferred first."""
        return tuple(
            metric
            for metric in self.metrics
            if metric.purpose is purpose and (version is None or is_within(version, metric.since, metric.until))
        )


def table_of(
    metrics: Iterable[EngineMetric], *, path: str, version: str, enabled_by: str = "", lacking: dict[Purpose, str]
) -> MetricTable:
    return MetricTable(
        path=path, version=version, enabled_by=enabled_by, metrics=tuple(metrics), lacking=tuple(lacking.items())
    )


def is_within(version: str, since: str | None, until: str | None) -> bool:
    """Tell whether `version` lies between the two, both included. What cannot be compared is within."""
    key = version_key(version)
    if not key:
        return True
    if since is not None and version_key(since) > key:
        return False
    return until is None or key <= (*version_key(until), _ANY)


_ANY = 1 << 30
"""Later than every patch of the same release: 1.2 as an upper bound includes 1.2.1."""


def version_key(version: str) -> tuple[int, ...]:
    """Order versions by their leading numbers: `0.5.4.post2`, `1.3.0rc26` and `b11549` are (0, 5, 4), (1, 3, 0) and
    (11549,)."""
    numbers: list[int] = []
    for part in version.lstrip("vb").split("+")[0].split("."):
        digits = ""
        for character in part:
            if not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits[:9]))
        if digits != part:
            break
    return tuple(numbers)
