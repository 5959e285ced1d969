"""Metrics of routing, of the engines' caches by their events, and of pools. Part of the catalogue."""

from headrace.telemetry.spec import MetricKind, MetricSpec


def _metric(kind: MetricKind, name: str, labels: tuple[str, ...], unit: str, description: str) -> MetricSpec:
    return MetricSpec(name=name, kind=kind, labels=labels, unit=unit, description=description)


def _counter(name: str, labels: tuple[str, ...], unit: str, description: str) -> MetricSpec:
    return _metric(MetricKind.COUNTER, name, labels, unit, description)


def _gauge(name: str, labels: tuple[str, ...], unit: str, description: str) -> MetricSpec:
    return _metric(MetricKind.GAUGE, name, labels, unit, description)


PICKS = _counter(
    "headrace_routing_picks_total", ("endpoint", "reason"), "attempts",
    "Attempts sent to the endpoint where there was a choice: prefix where its prompt's beginning was believed to be "
    "cached there, load otherwise.",
)  # fmt: skip
PREDICTION_BOUNDS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
PREDICTION = MetricSpec(
    name="headrace_routing_ttft_prediction_ratio", kind=MetricKind.HISTOGRAM, labels=("pool",), unit="ratio",
    description="Time to first token as a share of what was predicted when the endpoint was picked; 1 is right, 2 "
    "twice as late.",
    buckets=PREDICTION_BOUNDS,
)  # fmt: skip
LEFT_OUT = _counter(
    "headrace_routing_left_out_total", ("model", "filter"), "endpoints",
    "Endpoints that were no candidates where there was a choice, by the first filter that left them out: pool-rules "
    "(accepts, split), compatibility, pinned, not-usable, no-room, tried.",
)  # fmt: skip
BRAKED = _counter(
    "headrace_routing_braked_picks_total", ("model",), "choices",
    "Choices in which an endpoint was left out since it had far more in flight than the mean.",
)  # fmt: skip
SAMPLED = _counter(
    "headrace_routing_sampled_picks_total", ("model",), "choices",
    "Choices for which not all endpoints of a large fleet were looked at.",
)  # fmt: skip
PREFIX_TOKENS = _counter(
    "headrace_routing_prefix_tokens_total", ("model", "kind"), "tokens",
    "Input tokens of answers that told what was cached: input (all of them), expected (believed to be cached), cached.",
)  # fmt: skip
CHOICES = _counter(
    "headrace_model_choices_total", ("name", "model"), "requests",
    "Requests for a name that stands for several models (auto_models), by the model that was chosen first.",
)  # fmt: skip
INDEX_BLOCKS = _gauge(
    "headrace_routing_index_blocks", ("endpoint",), "blocks", "Blocks of prompts that the endpoint is believed to hold."
)
INDEX_TOKENS = _gauge("headrace_routing_index_tokens", ("endpoint",), "tokens", "The same in tokens, estimated.")

CACHE_STORED = _counter(
    "headrace_kv_events_stored_blocks_total", ("endpoint",), "blocks",
    "Blocks that the engine told to have stored in its KV cache, since it was followed.",
)  # fmt: skip
CACHE_REMOVED = _counter(
    "headrace_kv_events_removed_blocks_total", ("endpoint",), "blocks",
    "Blocks that it told to have evicted; its rate is how fast the cache turns over.",
)  # fmt: skip
CACHE_EMPTIED = _counter(
    "headrace_kv_events_emptied_total", ("endpoint", "cause"), "events",
    "How often the engine forgot all at once: cleared, restarted.",
)  # fmt: skip
CACHE_HELD = _gauge(
    "headrace_kv_events_held_tokens", ("endpoint", "tier"), "tokens",
    "Tokens that can be found in the engine's cache, by its events: device, beyond; absent where some are missing.",
)  # fmt: skip
EVENT_MESSAGES = _counter(
    "headrace_kv_events_messages_total", ("endpoint", "result"), "messages",
    "Messages of events: read (replayed are among them), replayed, missed, unreadable.",
)  # fmt: skip

POOL_RUNNING = _gauge(
    "headrace_pool_running_requests", ("pool", "role"), "requests", "What the pool's engines say they run."
)
POOL_WAITING = _gauge(
    "headrace_pool_waiting_requests", ("pool", "role"), "requests", "What waits in the pool's engines, as they say."
)
POOL_KV = _gauge(
    "headrace_pool_kv_utilization_ratio", ("pool", "role"), "ratio",
    "Mean share of KV memory in use of the pool's engines; absent where none tells.",
)  # fmt: skip
POOL_PREFILL = _gauge(
    "headrace_pool_prefill_tokens",
    ("pool", "role"),
    "tokens",
    "Prompt tokens sent there whose first token has not come.",
)
POOL_HELD = _gauge(
    "headrace_pool_held_tokens", ("pool", "role"), "tokens", "Tokens of requests there that have their first token."
)
POOL_ENGINES = _gauge(
    "headrace_pool_measured_engines", ("pool", "role"), "engines", "Engines of the pool whose own numbers are fresh."
)

ROUTING_METRICS = (
    PICKS, PREDICTION, LEFT_OUT, BRAKED, SAMPLED, PREFIX_TOKENS, CHOICES, INDEX_BLOCKS, INDEX_TOKENS,
    CACHE_STORED, CACHE_REMOVED, CACHE_EMPTIED, CACHE_HELD, EVENT_MESSAGES,
    POOL_RUNNING, POOL_WAITING, POOL_KV, POOL_PREFILL, POOL_HELD, POOL_ENGINES,
)  # fmt: skip
TOLD_BY_ENGINES = (
    CACHE_STORED, CACHE_REMOVED, CACHE_EMPTIED, CACHE_HELD, EVENT_MESSAGES,
    POOL_RUNNING, POOL_WAITING, POOL_KV, POOL_ENGINES,
)  # fmt: skip
"""Every worker is told the same by the engines: of several workers the largest counts, not the sum."""
