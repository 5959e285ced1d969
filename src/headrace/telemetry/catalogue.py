"""Every metric that headrace exposes: name, kind, labels, buckets, meaning. docs/metrics.md is generated from it.

Label values are bounded: declared names, closed enums, and nothing a caller can invent (PAINS 14).
"""

from headrace.domain.errors import ERRORS, Fault, Outcome
from headrace.telemetry.process_metrics import PROCESS_METRICS
from headrace.telemetry.routing_metrics import ROUTING_METRICS
from headrace.telemetry.spec import MetricKind, MetricSpec

UNKNOWN_MODEL = "unknown"
"""Label of requests that name no declared model, however many names callers make up."""

FIRST_TOKEN_BUCKETS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
)  # fmt: skip
"""From a cached small model to a long prompt on a busy engine; near vLLM's own, so that the two can be compared."""
TOKEN_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip
"""Fine around 10-100 ms, where readers notice."""
END_TO_END_BUCKETS_S = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 240.0, 480.0, 960.0,
)  # fmt: skip
QUEUE_BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


def _counter(
    name: str, labels: tuple[str, ...], unit: str, description: str, from_zero: tuple[str, ...] = ()
) -> MetricSpec:
    return MetricSpec(
        name=name, kind=MetricKind.COUNTER, labels=labels, unit=unit, description=description, from_zero=from_zero
    )


def _gauge(name: str, labels: tuple[str, ...], unit: str, description: str) -> MetricSpec:
    return MetricSpec(name=name, kind=MetricKind.GAUGE, labels=labels, unit=unit, description=description)


def _histogram(name: str, description: str, buckets: tuple[float, ...]) -> MetricSpec:
    return MetricSpec(
        name=name,
        kind=MetricKind.HISTOGRAM,
        labels=("model",),
        unit="seconds",
        description=description,
        buckets=buckets,
    )


REQUESTS = _counter(
    "headrace_requests_total", ("model", "outcome", "code"), "requests",
    "Requests by outcome and error code (empty when completed); every request is counted exactly once.",
)  # fmt: skip
ENDS_FROM_ZERO = (
    (Outcome.COMPLETED.value, ""),
    *((row.outcome.value, code.value) for code, row in ERRORS.items() if row.fault not in (Fault.CALLER, Fault.TENANT)),
)
"""Outcomes and codes of REQUESTS that a declared model shows as 0 before the first one (see `MetricSpec.from_zero`):
all but those that are a caller's or a tenant's own doing.
"""
TTFT = _histogram(
    "headrace_ttft_seconds", "Time to first token, observer gateway: request complete to first output event.",
    FIRST_TOKEN_BUCKETS_S,
)  # fmt: skip
TPOT = _histogram(
    "headrace_tpot_seconds", "(E2E - TTFT) / (output tokens - 1) per completed stream of two tokens or more.",
    TOKEN_BUCKETS_S,
)  # fmt: skip
ITL = _histogram(
    "headrace_itl_seconds",
    "Gap between consecutive output events of a stream; events that arrive together have gap 0. Equals the inter-token "
    "latency where the engine sends one token per event.",
    TOKEN_BUCKETS_S,
)  # fmt: skip
E2E = _histogram("headrace_e2e_seconds", "Request complete to last byte, completed requests.", END_TO_END_BUCKETS_S)
QUEUE = _histogram("headrace_queue_seconds", "Request complete to dispatch to an engine.", QUEUE_BUCKETS_S)
QUEUE_WAITING = _gauge(
    "headrace_queue_waiting_requests", ("model", "class"), "requests", "Requests that wait in the gateway for room."
)
QUEUE_OLDEST = _gauge(
    "headrace_queue_oldest_seconds", ("model", "class"), "seconds", "How long the first of them has waited; 0: none."
)
QUEUE_REFUSALS = _counter(
    "headrace_queue_refusals_total",
    ("model", "bound"),
    "requests",
    "Requests refused or ended by a queue: by the bound that was full, expired, or by the tenant's ladder.",
    from_zero=("tenant_requests", "tenant_bytes", "pool_requests", "pool_bytes", "expired", "ladder"),
)
QUEUE_DEGRADED = _counter(
    "headrace_queue_degraded_total",
    ("model", "step"),
    "requests",
    "Requests changed so that they need not be refused: shorter output, cheaper model.",
)
QUEUE_WITHDRAWALS = _counter(
    "headrace_queue_withdrawals_total",
    ("model",),
    "requests",
    "Offline requests taken back from an engine before their first byte, for more urgent ones.",
)
ENDPOINT_PLACES = _gauge(
    "headrace_endpoint_places",
    ("endpoint",),
    "requests",
    "Requests that this gateway may have at the endpoint; absent where no bound is known.",
)
ENDPOINT_PREFILL = _gauge(
    "headrace_endpoint_prefill_tokens", ("endpoint",), "tokens", "Prompt tokens sent whose first token has not come."
)
ENDPOINT_HELD = _gauge(
    "headrace_endpoint_held_tokens", ("endpoint",), "tokens", "Tokens of the requests that have their first token."
)
ENDPOINT_LOAD_AGE = _gauge(
    "headrace_endpoint_load_age_seconds",
    ("endpoint",),
    "seconds",
    "Age of the engine's own load figures; absent where there never were any.",
)
CACHE_MISSES = _counter(
    "headrace_cache_misses_total", ("cause",), "requests",
    "Requests of the examined sample that could have shared a cached prefix and did not; causes: docs/cache-misses.md.",
)  # fmt: skip
CACHE_MISS_TOKENS = _counter(
    "headrace_cache_miss_tokens_total", ("cause",), "tokens",
    "Tokens computed anew by them although an engine had computed them before; estimated.",
)  # fmt: skip
HANDOVER_DECISIONS = _counter(
    "headrace_handover_decisions_total", ("model", "reason"), "requests",
    "Requests for models with prefill and decode engines: those with reason gain were split, all others stayed whole.",
)  # fmt: skip
HANDOVERS = _counter(
    "headrace_handovers_total", ("model", "end"), "requests",
    "Hand-overs by how they ended: completed, fell-back, passed-on, broken, caller-left.",
    from_zero=("completed", "fell-back", "passed-on", "broken", "caller-left"),
)  # fmt: skip
HANDOVER_FALLBACKS = _counter(
    "headrace_handover_fallbacks_total", ("model", "reason"), "requests",
    "Hand-overs that failed before decode's first token, by reason; the request went to one engine.",
    from_zero=(
        "prefill_refused", "prefill_lost", "prefill_late", "prefill_unreadable", "ticket_spent", "ticket_expired",
        "transfer_failed", "transfer_late", "transfer_short", "file_torn", "decode_unavailable", "decode_refused",
        "decode_lost", "decode_late",
    ),
)  # fmt: skip
HANDOVER_PAIRS = _gauge(
    "headrace_handover_pairs", ("model", "state"), "pairs",
    "Usable pairs of prefill and decode engines: fits, kv_layout_mismatch (never paired), or not_measured, where an "
    "engine has not said what it is.",
)  # fmt: skip
HANDOVER_TOKENS = _counter(
    "headrace_handover_tokens_total", ("model",), "tokens", "Prompt tokens whose KV was handed over."
)
HANDOVER_BYTES = _counter(
    "headrace_handover_bytes_total", ("model",), "bytes",
    "Bytes of that KV; absent where the size of a token is not known (pools.<name>.handover.kv_bytes_per_token).",
)  # fmt: skip
HANDOVER_STAGES = MetricSpec(
    name="headrace_handover_stage_seconds",
    kind=MetricKind.HISTOGRAM,
    labels=("model", "stage"),
    unit="seconds",
    description="What the time to the first token of a split request is made of: prefill_queue (as predicted), "
    "prefill, transfer, decode_queue.",
    buckets=FIRST_TOKEN_BUCKETS_S,
)
TOKENS = _counter(
    "headrace_tokens_total", ("model", "kind"), "tokens", "Tokens as engines counted them: input, cached_input, output."
)
IN_FLIGHT = _gauge("headrace_in_flight_requests", (), "requests", "Admitted requests that have not ended.")
CONNECTIONS = _gauge("headrace_caller_connections", (), "connections", "Open connections of callers.")
RETRIES = _counter("headrace_retries_total", ("model",), "attempts", "Attempts repeated at the same endpoint.")
FAILOVERS = _counter(
    "headrace_failovers_total",
    ("model", "code"),
    "attempts",
    "Attempts moved to another endpoint, by cause.",
    from_zero=tuple(code.value for code, row in ERRORS.items() if row.may_fail_over),
)
RESUMES = _counter(
    "headrace_resumes_total", ("model", "cause"), "resumes",
    "Streams sent on to another endpoint after their first byte, by cause: died, stalled, drained.",
    from_zero=("died", "stalled", "drained"),
)  # fmt: skip
UNRESUMED = _counter(
    "headrace_unresumed_streams_total", ("model", "reason"), "requests",
    "Streams that broke after their first byte and ended in an error, by the reason why they were not resumed.",
    from_zero=(
        "off", "api", "engine", "choices", "logprobs", "tools", "reasoning", "penalties", "min_tokens", "seed",
        "structured", "messages", "field", "too_long", "refused", "attempts", "budget", "no_endpoint",
    ),
)  # fmt: skip
RESUME_GAP = _histogram(
    "headrace_resume_gap_seconds",
    "What the caller of a resumed stream waited: last output event before the break to the first one after it.",
    FIRST_TOKEN_BUCKETS_S,
)  # fmt: skip
HEDGES = _counter(
    "headrace_hedges_total", ("model", "result"), "attempts",
    "Second attempts made while a first token was late: won, lost (cancelled), failed.",
)  # fmt: skip
RETRY_BUDGET_REFUSALS = _counter(
    "headrace_retry_budget_refusals_total",
    (),
    "attempts",
    "Attempts not repeated because the retry budget was used up.",
)
CANCELS = _counter(
    "headrace_engine_cancels_total",
    ("endpoint",),
    "requests",
    "Requests closed at an engine before their answer was whole.",
)
ENDPOINT_STATE = _gauge(
    "headrace_endpoint_state", ("endpoint", "state"), "boolean", "1 for the state the endpoint is in."
)
ENDPOINT_IN_FLIGHT = _gauge(
    "headrace_endpoint_in_flight_requests", ("endpoint",), "requests", "Requests at the endpoint now."
)
ENDPOINT_REQUESTS = _counter(
    "headrace_endpoint_requests_total", ("endpoint",), "attempts", "Attempts sent to the endpoint."
)
ENDPOINT_FAILURES = _counter(
    "headrace_endpoint_failures_total", ("endpoint",), "attempts", "Attempts that failed by the engine's fault."
)
JOURNAL_DROPPED = _counter(
    "headrace_journal_dropped_records_total", (), "records", "Ledger records lost: disk full or too slow."
)
JOURNAL_PENDING = _gauge("headrace_journal_pending_records", (), "records", "Ledger records not on disk yet.")
LOG_DROPPED = _counter(
    "headrace_request_log_dropped_lines_total", (), "lines", "Request log lines lost: disk full or too slow."
)
TENANT_REQUESTS = _counter(
    "headrace_tenant_requests_total", ("tenant", "outcome"), "requests",
    "Requests by tenant and outcome; tenants beyond quota.named_tenants are other.",
    from_zero=tuple(outcome.value for outcome in Outcome),
)  # fmt: skip
TENANT_TOKENS = _counter(
    "headrace_tenant_tokens_total", ("tenant", "kind"), "tokens",
    "Tokens by tenant as engines counted them: input, cached_input, output.",
)  # fmt: skip
TENANT_GPU = _counter(
    "headrace_tenant_gpu_seconds_total", ("tenant",), "seconds", "GPU time attributed to the tenant's requests."
)
TENANT_COST = _counter(
    "headrace_tenant_cost_total", ("tenant", "currency"), "currency", "Cost of the tenant's requests by `prices`."
)
QUOTA_REFUSALS = _counter(
    "headrace_quota_refusals_total", ("level", "limit"), "requests", "Requests refused by a limit, by level and limit."
)
BUDGET_USED = _gauge(
    "headrace_budget_used", ("level", "name", "period", "currency"), "currency",
    "Spent and reserved of a budget in the present calendar day or month (UTC).",
)  # fmt: skip
BUDGET = _gauge(
    "headrace_budget", ("level", "name", "period", "currency"), "currency",
    "The declared budget; divide headrace_budget_used by it, over several workers too.",
)  # fmt: skip
BUDGET_MARKS = _counter(
    "headrace_budget_marks_total", ("level", "name", "period", "share"), "events",
    "How often a budget was used up to a share: 0.8 and 1.",
)  # fmt: skip
LEDGER_LAG = _gauge("headrace_ledger_lag_records", (), "records", "Records on disk that are not in the database yet.")
REPLICA_PHASE = _gauge("headrace_replica_phase", ("replica", "phase"), "boolean", "1 for the phase the replica is in.")
REPLICA_RESTARTS = _counter(
    "headrace_replica_restarts_total", ("replica",), "restarts", "Deaths and restarts of the replica's engine."
)
GATEWAY_RESTARTS = _counter(
    "headrace_gateway_restarts_total", (), "restarts", "Gateway workers started again after they died."
)

SHARING_LOST = _gauge(
    "headrace_sharing_lost", (), "boolean",
    "1 while the store of shared limits cannot be reached, and gateway.sharing.on_store_loss holds.",
)  # fmt: skip
SHARING_MEMBERS = _gauge(
    "headrace_sharing_members", (), "processes", "Processes that hold limits together, as last known."
)
SHARING_EXCHANGES = _counter(
    "headrace_sharing_exchanges_total", (), "exchanges", "Exchanges with the store of shared limits that were answered."
)
SHARING_FAILURES = _counter(
    "headrace_sharing_failures_total", (), "exchanges", "Exchanges with the store of shared limits that failed."
)
SHARING_LOSSES = _counter(
    "headrace_sharing_losses_total", (), "events", "How often the store of shared limits was lost."
)

IDENTITY_KEYS_TIME = _gauge(
    "headrace_identity_keys_time_seconds", ("issuer",), "seconds",
    "When an identity provider's keys last came (Unix time); of several workers the earliest.",
)  # fmt: skip
IDENTITY_FETCHES = _counter(
    "headrace_identity_key_fetches_total", ("issuer", "result"), "fetches",
    "Looks at an identity provider's keys, fetched or failed.",
)  # fmt: skip

METRICS: tuple[MetricSpec, ...] = (
    REQUESTS, TTFT, TPOT, ITL, E2E, QUEUE, QUEUE_WAITING, QUEUE_OLDEST, QUEUE_REFUSALS, QUEUE_DEGRADED,
    QUEUE_WITHDRAWALS, ENDPOINT_PLACES, ENDPOINT_PREFILL, ENDPOINT_HELD, ENDPOINT_LOAD_AGE, CACHE_MISSES,
    CACHE_MISS_TOKENS, HANDOVER_DECISIONS, HANDOVERS, HANDOVER_FALLBACKS, HANDOVER_PAIRS, HANDOVER_TOKENS,
    HANDOVER_BYTES, HANDOVER_STAGES, TOKENS, IN_FLIGHT, CONNECTIONS, RETRIES, FAILOVERS, RESUMES, UNRESUMED,
    RESUME_GAP, HEDGES, RETRY_BUDGET_REFUSALS,
    CANCELS, ENDPOINT_STATE, ENDPOINT_IN_FLIGHT, ENDPOINT_REQUESTS, ENDPOINT_FAILURES, JOURNAL_DROPPED, JOURNAL_PENDING,
    LOG_DROPPED, TENANT_REQUESTS, TENANT_TOKENS, TENANT_GPU, TENANT_COST, QUOTA_REFUSALS, BUDGET_USED, BUDGET,
    BUDGET_MARKS, SHARING_LOST, SHARING_MEMBERS, SHARING_EXCHANGES, SHARING_FAILURES, SHARING_LOSSES,
    IDENTITY_KEYS_TIME, IDENTITY_FETCHES,
    LEDGER_LAG, REPLICA_PHASE, REPLICA_RESTARTS, GATEWAY_RESTARTS, *ROUTING_METRICS,
    *PROCESS_METRICS,
)  # fmt: skip
"""All of them, in the order of docs/metrics.md."""
