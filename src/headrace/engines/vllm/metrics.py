"""vLLM's metrics by purpose. Read in the sources of 0.2.7, 0.4.3, 0.6.6, 0.8.5, 0.9.2, 0.10.2, 0.11.0, 0.12.0, 0.16.0,
0.24.0 and 0.33.0; pages of 0.32.0 were read from a running engine (plain, speculative, NIXL).
"""

from functools import partial

from headrace.engines.metrics import Appears, Combine, EngineMetric, MetricType, Purpose, table_of

_LOGGERS = "vllm/v1/metrics/loggers.py"
_V0 = "vllm/engine/metrics.py"
_NIXL = "vllm/distributed/kv_transfer/kv_connector/v1/nixl/stats.py"
_MOONCAKE = "vllm/distributed/kv_transfer/kv_connector/v1/mooncake/stats.py"
_OFFLOADING = "vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py"

gauge = partial(EngineMetric, type=MetricType.GAUGE, source=_LOGGERS)
counter = partial(EngineMetric, type=MetricType.COUNTER, source=_LOGGERS)
histogram = partial(EngineMetric, type=MetricType.HISTOGRAM, source=_LOGGERS, unit="seconds")
labels = partial(EngineMetric, type=MetricType.LABELS, source=_LOGGERS)
nixl = partial(EngineMetric, source=_NIXL, appears=Appears.WITH_FEATURE, feature="the NIXL connector", since="0.12.0")
mooncake = partial(
    EngineMetric, source=_MOONCAKE, appears=Appears.WITH_FEATURE, feature="the Mooncake connector", since="0.33.0"
)
offload = partial(
    EngineMetric, source=_OFFLOADING, appears=Appears.WITH_FEATURE, feature="--kv-offloading-size", since="0.24.0"
)
speculative = partial(
    counter, appears=Appears.WITH_FEATURE, feature="speculative decoding", source="vllm/v1/spec_decode/metrics.py"
)

ABORTED = frozenset({"abort", "error"})
"""Values of `finished_reason` that are no success, although the metric is called request_success. Source: FinishReason
in vllm/v1/engine/__init__.py."""

FINISHED = frozenset({"stop", "length", "repetition"})

METRICS = table_of(
    [
        gauge(purpose=Purpose.RUNNING, name="vllm:num_requests_running", since="0.2.7"),
        gauge(purpose=Purpose.WAITING, name="vllm:num_requests_waiting", since="0.2.7"),
        gauge(
            purpose=Purpose.KV_UTILIZATION,
            name="vllm:kv_cache_usage_perc",
            unit="ratio 0..1, whatever its name",
            combine=Combine.MAX,
            since="0.9.2",
        ),
        gauge(
            purpose=Purpose.KV_UTILIZATION,
            name="vllm:gpu_cache_usage_perc",
            unit="ratio 0..1, whatever its name",
            combine=Combine.MAX,
            source=_V0,
            since="0.2.7",
            until="0.11.0",
        ),
        labels(
            purpose=Purpose.KV_CAPACITY,
            name="vllm:cache_config_info",
            unit="tokens",
            combine=Combine.LABEL_SUM,
            label="kv_cache_size_tokens",
            since="0.24.0",
        ),
        counter(purpose=Purpose.PREFIX_QUERIES, name="vllm:prefix_cache_queries_total", unit="tokens", since="0.9.2"),
        counter(
            purpose=Purpose.PREFIX_QUERIES,
            name="vllm:gpu_prefix_cache_queries_total",
            unit="tokens",
            since="0.8.5",
            until="0.11.0",
        ),
        counter(purpose=Purpose.PREFIX_HITS, name="vllm:prefix_cache_hits_total", unit="tokens", since="0.9.2"),
        counter(
            purpose=Purpose.PREFIX_HITS,
            name="vllm:gpu_prefix_cache_hits_total",
            unit="tokens",
            since="0.8.5",
            until="0.11.0",
        ),
        gauge(
            purpose=Purpose.PREFIX_HIT_RATIO,
            name="vllm:gpu_prefix_cache_hit_rate",
            unit="ratio 0..1",
            combine=Combine.MEAN,
            source=_V0,
            since="0.6.6",
            until="0.8.5",
        ),
        counter(
            purpose=Purpose.CACHED_TOKENS,
            name="vllm:prompt_tokens_cached_by_source_total",
            unit="tokens",
            by="source",
            since="0.32.0",
        ),
        counter(purpose=Purpose.CACHED_TOKENS, name="vllm:prompt_tokens_cached_total", unit="tokens", since="0.16.0"),
        histogram(purpose=Purpose.TTFT, name="vllm:time_to_first_token_seconds", since="0.4.3"),
        histogram(purpose=Purpose.ITL, name="vllm:inter_token_latency_seconds", since="0.10.2"),
        histogram(
            purpose=Purpose.ITL, name="vllm:time_per_output_token_seconds", source=_V0, since="0.4.3", until="0.12.0"
        ),
        histogram(purpose=Purpose.TPOT, name="vllm:request_time_per_output_token_seconds", since="0.11.0"),
        histogram(purpose=Purpose.E2E, name="vllm:e2e_request_latency_seconds", since="0.4.3"),
        histogram(purpose=Purpose.QUEUE_TIME, name="vllm:request_queue_time_seconds", since="0.6.6"),
        histogram(purpose=Purpose.PREFILL_TIME, name="vllm:request_prefill_time_seconds", since="0.6.6"),
        histogram(purpose=Purpose.DECODE_TIME, name="vllm:request_decode_time_seconds", since="0.6.6"),
        counter(purpose=Purpose.TOKENS_IN, name="vllm:prompt_tokens_total", unit="tokens", since="0.4.3"),
        counter(purpose=Purpose.TOKENS_OUT, name="vllm:generation_tokens_total", unit="tokens", since="0.4.3"),
        counter(purpose=Purpose.PREEMPTIONS, name="vllm:num_preemptions_total", unit="requests", since="0.4.3"),
        counter(
            purpose=Purpose.SUCCEEDED,
            name="vllm:request_success_total",
            unit="requests",
            by="finished_reason",
            only_where=("finished_reason", FINISHED),
            since="0.4.3",
        ),
        counter(
            purpose=Purpose.FAILED,
            name="vllm:request_success_total",
            unit="requests",
            by="finished_reason",
            only_where=("finished_reason", ABORTED),
            since="0.4.3",
        ),
        counter(
            purpose=Purpose.REFUSED,
            name="vllm:admission_rejections_total",
            unit="requests",
            by="reason",
            since="0.32.0",
        ),
        labels(purpose=Purpose.CONFIG, name="vllm:cache_config_info", since="0.6.6"),
        nixl(
            purpose=Purpose.KV_TRANSFER_TIME,
            name="vllm:nixl_xfer_time_seconds",
            type=MetricType.HISTOGRAM,
            unit="seconds",
        ),
        mooncake(
            purpose=Purpose.KV_TRANSFER_TIME,
            name="vllm:mooncake_xfer_time_seconds",
            type=MetricType.HISTOGRAM,
            unit="seconds",
        ),
        nixl(
            purpose=Purpose.KV_TRANSFER_BYTES,
            name="vllm:nixl_bytes_transferred",
            type=MetricType.HISTOGRAM,
            unit="bytes",
        ),
        mooncake(
            purpose=Purpose.KV_TRANSFER_BYTES,
            name="vllm:mooncake_bytes_transferred",
            type=MetricType.HISTOGRAM,
            unit="bytes",
        ),
        nixl(
            purpose=Purpose.KV_TRANSFER_FAILURES,
            name="vllm:nixl_num_failed_transfers_total",
            type=MetricType.COUNTER,
            unit="transfers and, expired on the prefill side, requests",
            plus=("vllm:nixl_num_kv_expired_reqs_total",),
        ),
        mooncake(
            purpose=Purpose.KV_TRANSFER_FAILURES,
            name="vllm:mooncake_num_failed_transfers_total",
            type=MetricType.COUNTER,
            unit="transfers and, expired on the prefill side, requests",
            plus=("vllm:mooncake_num_failed_recvs_total", "vllm:mooncake_num_kv_expired_reqs_total"),
        ),
        gauge(
            purpose=Purpose.KV_TRANSFER_WAITING,
            name="vllm:num_requests_kv_fetch_by_stage",
            by="stage",
            appears=Appears.WITH_FEATURE,
            feature="a KV connector that consumes",
            since="0.32.0",
        ),
        counter(
            purpose=Purpose.OFFLOAD_HITS,
            name="vllm:prompt_tokens_cached_by_source_total",
            unit="tokens",
            by="source",
            only_where=("source", frozenset({"host", "disk"})),
            since="0.32.0",
        ),
        counter(
            purpose=Purpose.OFFLOAD_HITS,
            name="vllm:external_prefix_cache_hits_total",
            unit="tokens; KV that came from another instance counts as well",
            since="0.12.0",
        ),
        offload(
            purpose=Purpose.OFFLOAD_UTILIZATION,
            name="vllm:kv_offload_cpu_cache_usage_perc",
            type=MetricType.GAUGE,
            unit="ratio 0..1",
            combine=Combine.MAX,
            source="vllm/v1/kv_offload/cpu/common.py",
        ),
        offload(
            purpose=Purpose.OFFLOAD_RETURN_TIME,
            name="vllm:kv_offload_load_time_total",
            type=MetricType.COUNTER,
            unit="seconds in all",
        ),
        offload(
            purpose=Purpose.OFFLOAD_RETURN_BYTES,
            name="vllm:kv_offload_load_bytes_total",
            type=MetricType.COUNTER,
            unit="bytes",
        ),
        offload(
            purpose=Purpose.OFFLOAD_STORED_BYTES,
            name="vllm:kv_offload_store_bytes_total",
            type=MetricType.COUNTER,
            unit="bytes",
        ),
        offload(
            purpose=Purpose.OFFLOAD_EVICTIONS,
            name="vllm:kv_offload_stores_skipped_total",
            type=MetricType.COUNTER,
            unit="stores not taken",
            source="vllm/v1/kv_offload/cpu/common.py",
        ),
        speculative(
            purpose=Purpose.DRAFT_TOKENS,
            name="vllm:spec_decode_num_draft_tokens_total",
            unit="tokens",
            since="0.6.6",
        ),
        speculative(
            purpose=Purpose.ACCEPTED_TOKENS,
            name="vllm:spec_decode_num_accepted_tokens_total",
            unit="tokens",
            since="0.6.6",
        ),
    ],
    path="/metrics",
    version="0.33.0",
    enabled_by="on unless --disable-log-stats",
    lacking={
        Purpose.PREFIX_HIT_RATIO: "divide prefix-hits by prefix-queries (a gauge of its own until 0.8.5)",
        Purpose.EVICTIONS: "vllm:kv_block_idle_before_evict_seconds and its like show them only with "
        "--kv-cache-metrics, and only a sample",
        Purpose.ACCEPTANCE_RATIO: "divide accepted-tokens by draft-tokens",
    },
)
