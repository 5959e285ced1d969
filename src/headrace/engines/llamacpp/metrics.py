"""llama.cpp's metrics by purpose. Read from the page of a running llama.cpp b11549 (xllamacpp 2026.10), no labels.

Its prompt counter leaves cached tokens out, unlike those of the other engines: they are added here.
"""

from functools import partial

from headrace.engines.metrics import EngineMetric, MetricType, Purpose, table_of

_SERVER = "tools/server/server-context.cpp"

gauge = partial(EngineMetric, type=MetricType.GAUGE, source=_SERVER)
counter = partial(EngineMetric, type=MetricType.COUNTER, source=_SERVER)

_PROMPT = "llamacpp:prompt_tokens_total"
_CACHED = "llamacpp:prompt_tokens_cached_total"

METRICS = table_of(
    [
        gauge(purpose=Purpose.RUNNING, name="llamacpp:requests_processing"),
        gauge(purpose=Purpose.WAITING, name="llamacpp:requests_deferred"),
        gauge(
            purpose=Purpose.KV_UTILIZATION,
            name="llamacpp:kv_cache_usage_ratio",
            unit="ratio 0..1",
            source="examples/server/server.cpp",
            until="b5306",
        ),
        counter(purpose=Purpose.PREFIX_QUERIES, name=_PROMPT, plus=(_CACHED,), unit="tokens, cached ones left out"),
        counter(purpose=Purpose.PREFIX_HITS, name=_CACHED, unit="tokens"),
        counter(purpose=Purpose.CACHED_TOKENS, name=_CACHED, unit="tokens"),
        counter(purpose=Purpose.PREFILL_TIME, name="llamacpp:prompt_seconds_total", unit="seconds in all"),
        counter(purpose=Purpose.DECODE_TIME, name="llamacpp:tokens_predicted_seconds_total", unit="seconds in all"),
        counter(purpose=Purpose.TOKENS_IN, name=_PROMPT, plus=(_CACHED,), unit="tokens, cached ones left out"),
        counter(purpose=Purpose.TOKENS_OUT, name="llamacpp:tokens_predicted_total", unit="tokens"),
        counter(
            purpose=Purpose.DRAFT_TOKENS,
            name="llamacpp:spec_decode_num_draft_tokens_total",
            unit="tokens; 0 without speculative decoding",
        ),
        counter(
            purpose=Purpose.ACCEPTED_TOKENS,
            name="llamacpp:spec_decode_num_accepted_tokens_total",
            unit="tokens; 0 without speculative decoding",
        ),
    ],
    path="/metrics",
    version="b11549",
    enabled_by="--metrics (headrace passes it)",
    lacking={
        Purpose.KV_UTILIZATION: "GET /slots has each slot's context and how much of it is used",
        Purpose.KV_CAPACITY: "context per slot times slots, both declared",
        Purpose.PREFIX_HIT_RATIO: "divide prefix-hits by prefix-queries",
        Purpose.TTFT: "timings in each answer; measured by the gateway",
        Purpose.ITL: "timings in each answer; measured by the gateway",
        Purpose.TPOT: "timings in each answer; measured by the gateway",
        Purpose.E2E: "measured by the gateway",
        Purpose.QUEUE_TIME: "measured by the gateway",
        Purpose.PREEMPTIONS: "a slot's sequence is never preempted",
        Purpose.EVICTIONS: "not counted",
        Purpose.SUCCEEDED: "counted by the gateway",
        Purpose.FAILED: "counted by the gateway",
        Purpose.REFUSED: "waits without bound",
        Purpose.CONFIG: "GET /props",
        Purpose.KV_TRANSFER_TIME: "timings in the answers of /slots",
        Purpose.KV_TRANSFER_BYTES: "n_written and n_read in the answers of /slots",
        Purpose.KV_TRANSFER_FAILURES: "not counted",
        Purpose.KV_TRANSFER_WAITING: "no such queue",
        Purpose.OFFLOAD_HITS: "prompts kept in memory count as cached tokens",
        Purpose.OFFLOAD_UTILIZATION: "not shown",
        Purpose.OFFLOAD_RETURN_TIME: "not shown",
        Purpose.OFFLOAD_RETURN_BYTES: "not shown",
        Purpose.OFFLOAD_STORED_BYTES: "not shown",
        Purpose.OFFLOAD_EVICTIONS: "not shown",
        Purpose.ACCEPTANCE_RATIO: "divide accepted-tokens by draft-tokens",
    },
)
