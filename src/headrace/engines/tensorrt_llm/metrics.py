"""TensorRT-LLM's metrics by purpose, in both eras: names with `trtllm_` and, up to 1.2, without.

Read in tensorrt_llm/metrics/collector.py at 050f80d (newest) and 89fd9b7 (1.2); nothing was run. Served at
/prometheus/metrics, only with `return_perf_metrics: true`. The engine's /metrics is another thing: a JSON queue of
iteration statistics that is emptied by reading, so that headrace never reads it.
"""

from functools import partial

from headrace.engines.metrics import Appears, Combine, EngineMetric, MetricType, Purpose, table_of

NEWEST = "tensorrt_llm/metrics/collector.py@050f80d"
FIRST = "tensorrt_llm/metrics/collector.py@89fd9b7"
PREFIX = "trtllm_"

_LAST_BARE = "1.2"
"""The newest release line whose names have no prefix."""

gauge = partial(EngineMetric, type=MetricType.GAUGE, source=NEWEST, appears=Appears.AFTER_TRAFFIC, since="1.3")
counter = partial(EngineMetric, type=MetricType.COUNTER, source=NEWEST, appears=Appears.AFTER_TRAFFIC, since="1.3")
_histogram = partial(
    EngineMetric, type=MetricType.HISTOGRAM, source=NEWEST, unit="seconds", appears=Appears.AFTER_TRAFFIC
)


def both_eras(purpose: Purpose, name: str) -> list[EngineMetric]:
    """A histogram that exists with and without the prefix."""
    return [
        _histogram(purpose=purpose, name=PREFIX + name, since="1.3"),
        _histogram(purpose=purpose, name=name, source=FIRST, until=_LAST_BARE),
    ]


METRICS = table_of(
    [
        gauge(purpose=Purpose.RUNNING, name="trtllm_num_requests_running"),
        gauge(purpose=Purpose.WAITING, name="trtllm_num_requests_waiting"),
        gauge(
            purpose=Purpose.KV_UTILIZATION,
            name="trtllm_kv_cache_utilization",
            unit="ratio 0..1",
            combine=Combine.MAX,
        ),
        gauge(
            purpose=Purpose.KV_UTILIZATION,
            name="kv_cache_utilization",
            unit="ratio 0..1",
            combine=Combine.MAX,
            since="1.2",
            until=_LAST_BARE,
        ),
        gauge(
            purpose=Purpose.PREFIX_HIT_RATIO,
            name="trtllm_kv_cache_hit_rate",
            unit="ratio 0..1",
            combine=Combine.MEAN,
        ),
        gauge(
            purpose=Purpose.PREFIX_HIT_RATIO,
            name="kv_cache_hit_rate",
            unit="ratio 0..1",
            combine=Combine.MEAN,
            since="1.2",
            until=_LAST_BARE,
        ),
        counter(purpose=Purpose.PREFIX_QUERIES, name="trtllm_prompt_tokens_total", unit="tokens"),
        counter(purpose=Purpose.PREFIX_HITS, name="trtllm_prompt_cached_tokens_total", unit="tokens"),
        counter(
            purpose=Purpose.CACHED_TOKENS, name="trtllm_prompt_cache_hit_tokens_total", unit="tokens", by="cache_tier"
        ),
        counter(purpose=Purpose.CACHED_TOKENS, name="trtllm_prompt_cached_tokens_total", unit="tokens"),
        *both_eras(Purpose.TTFT, "time_to_first_token_seconds"),
        *both_eras(Purpose.TPOT, "time_per_output_token_seconds"),
        *both_eras(Purpose.E2E, "e2e_request_latency_seconds"),
        *both_eras(Purpose.QUEUE_TIME, "request_queue_time_seconds"),
        _histogram(purpose=Purpose.PREFILL_TIME, name="trtllm_request_prefill_time_seconds", since="1.3"),
        _histogram(purpose=Purpose.DECODE_TIME, name="trtllm_request_decode_time_seconds", since="1.3"),
        counter(purpose=Purpose.TOKENS_IN, name="trtllm_prompt_tokens_total", unit="tokens"),
        counter(purpose=Purpose.TOKENS_OUT, name="trtllm_generation_tokens_total", unit="tokens"),
        gauge(
            purpose=Purpose.PREEMPTIONS,
            name="trtllm_num_paused_requests",
            unit="requests paused now: a gauge, so that preemptions between two reads are lost",
        ),
        counter(purpose=Purpose.SUCCEEDED, name="trtllm_request_success_total", unit="requests", by="finished_reason"),
        counter(
            purpose=Purpose.SUCCEEDED,
            name="request_success_total",
            unit="requests",
            by="finished_reason",
            source=FIRST,
            since=None,
            until=_LAST_BARE,
        ),
        counter(
            purpose=Purpose.FAILED,
            name="trtllm_request_error_total",
            unit="requests",
            by="http_code",
            appears=Appears.WITH_FEATURE,
            feature="a request that failed",
        ),
        EngineMetric(
            purpose=Purpose.CONFIG,
            name="trtllm_kv_cache_config_info",
            type=MetricType.LABELS,
            source=NEWEST,
            since="1.3",
        ),
        gauge(
            purpose=Purpose.OFFLOAD_UTILIZATION,
            name="trtllm_kv_cache_host_utilization",
            unit="ratio 0..1",
            combine=Combine.MAX,
        ),
        counter(purpose=Purpose.OFFLOAD_RETURN_BYTES, name="trtllm_kv_cache_onboard_bytes_total", unit="bytes"),
        counter(purpose=Purpose.OFFLOAD_STORED_BYTES, name="trtllm_kv_cache_offload_bytes_total", unit="bytes"),
        counter(
            purpose=Purpose.OFFLOAD_HITS,
            name="trtllm_prompt_cache_hit_tokens_total",
            unit="tokens",
            by="cache_tier",
            only_where=("cache_tier", frozenset({"host", "disk"})),
        ),
        counter(purpose=Purpose.DRAFT_TOKENS, name="trtllm_spec_decode_num_draft_tokens_total", unit="tokens"),
        counter(purpose=Purpose.ACCEPTED_TOKENS, name="trtllm_spec_decode_num_accepted_tokens_total", unit="tokens"),
    ],
    path="/prometheus/metrics",
    version="1.4.0rc4",
    enabled_by="return_perf_metrics: true (off by default); the scheduler's gauges need enable_iter_perf_stats: true",
    lacking={
        Purpose.KV_CAPACITY: "trtllm_kv_cache_max_blocks times trtllm_kv_cache_tokens_per_block",
        Purpose.ITL: "only the mean per request (tpot)",
        Purpose.EVICTIONS: "not counted",
        Purpose.REFUSED: "queues without bound",
        Purpose.KV_TRANSFER_TIME: "GET /perf_metrics",
        Purpose.KV_TRANSFER_BYTES: "GET /perf_metrics",
        Purpose.KV_TRANSFER_FAILURES: "not counted",
        Purpose.KV_TRANSFER_WAITING: "not counted",
        Purpose.OFFLOAD_RETURN_TIME: "not counted",
        Purpose.OFFLOAD_EVICTIONS: "not counted",
        Purpose.ACCEPTANCE_RATIO: "divide accepted-tokens by draft-tokens",
    },
)
