"""SGLang's metrics by purpose. Read in the wheels of 0.2.1, 0.3.6, 0.4.6, 0.4.9, 0.4.10.post2, 0.5.3, 0.5.10, 0.5.15
and 0.5.23; pages of 0.5.23 were read from running engines (unified, prefill, decode).

The scheduler's gauges exist once per rank: those of one tensor-parallel group say the same (`replicas`), and with
priority scheduling a series with an empty `priority` is the total of the others (`total_where`). The counters of the
tokenizer are the other way round: each request is counted under its own labels, so that all of them are added.
"""

from functools import partial

from headrace.engines.metrics import Appears, Combine, EngineMetric, MetricType, Purpose, table_of

_COLLECTOR = "sglang/srt/observability/metrics_collector.py"
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")

scheduler = partial(
    EngineMetric,
    type=MetricType.GAUGE,
    source=_COLLECTOR,
    replicas=_RANKS,
    total_where=("priority", ""),
    appears=Appears.AFTER_TRAFFIC,
)
counter = partial(EngineMetric, type=MetricType.COUNTER, source=_COLLECTOR)
histogram = partial(
    EngineMetric, type=MetricType.HISTOGRAM, source=_COLLECTOR, unit="seconds", appears=Appears.AFTER_TRAFFIC
)
transfer = partial(
    EngineMetric, source=_COLLECTOR, appears=Appears.WITH_FEATURE, feature="--disaggregation-mode", since="0.5.3"
)
hicache = partial(EngineMetric, source=_COLLECTOR, appears=Appears.WITH_FEATURE, feature="--enable-hierarchical-cache")

METRICS = table_of(
    [
        scheduler(purpose=Purpose.RUNNING, name="sglang:num_running_reqs", since="0.3.6"),
        scheduler(purpose=Purpose.WAITING, name="sglang:num_queue_reqs", since="0.3.6"),
        scheduler(
            purpose=Purpose.KV_UTILIZATION,
            name="sglang:token_usage",
            unit="ratio 0..1",
            combine=Combine.MAX,
            since="0.3.6",
        ),
        scheduler(purpose=Purpose.KV_CAPACITY, name="sglang:max_total_num_tokens", unit="tokens", since="0.5.10"),
        scheduler(
            purpose=Purpose.PREFIX_HIT_RATIO,
            name="sglang:cache_hit_rate",
            unit="ratio 0..1, of the last prefill batches",
            combine=Combine.MEAN,
            since="0.3.6",
        ),
        counter(
            purpose=Purpose.PREFIX_QUERIES,
            name="sglang:prompt_tokens_total",
            unit="tokens",
            appears=Appears.AFTER_TRAFFIC,
            since="0.3.6",
        ),
        counter(
            purpose=Purpose.PREFIX_HITS,
            name="sglang:cached_tokens_total",
            unit="tokens",
            appears=Appears.AFTER_TRAFFIC,
            since="0.4.6",
        ),
        counter(
            purpose=Purpose.CACHED_TOKENS,
            name="sglang:cached_tokens_total",
            unit="tokens",
            by="cache_source",
            appears=Appears.AFTER_TRAFFIC,
            since="0.4.6",
        ),
        histogram(purpose=Purpose.TTFT, name="sglang:time_to_first_token_seconds", since="0.3.6"),
        histogram(purpose=Purpose.ITL, name="sglang:inter_token_latency_seconds", since="0.4.6"),
        histogram(purpose=Purpose.ITL, name="sglang:time_per_output_token_seconds", since="0.3.6", until="0.3.6"),
        histogram(purpose=Purpose.TPOT, name="sglang:request_time_per_output_token_seconds", since="0.5.23"),
        histogram(purpose=Purpose.E2E, name="sglang:e2e_request_latency_seconds", since="0.3.6"),
        histogram(purpose=Purpose.QUEUE_TIME, name="sglang:queue_time_seconds", replicas=_RANKS, since="0.5.3"),
        counter(
            purpose=Purpose.TOKENS_IN,
            name="sglang:prompt_tokens_total",
            unit="tokens",
            appears=Appears.AFTER_TRAFFIC,
            since="0.3.6",
        ),
        counter(
            purpose=Purpose.TOKENS_OUT,
            name="sglang:generation_tokens_total",
            unit="tokens",
            appears=Appears.AFTER_TRAFFIC,
            since="0.3.6",
        ),
        counter(
            purpose=Purpose.PREEMPTIONS,
            name="sglang:num_retracted_requests_total",
            unit="requests",
            replicas=_RANKS,
            appears=Appears.WITH_FEATURE,
            feature="requests that were retracted",
            since="0.5.10",
        ),
        scheduler(
            purpose=Purpose.PREEMPTIONS,
            name="sglang:num_retracted_reqs",
            unit="requests retracted in the last step: a gauge, so that preemptions between two reads are lost",
            since="0.5.3",
        ),
        counter(
            purpose=Purpose.EVICTIONS,
            name="sglang:evicted_tokens_total",
            unit="tokens",
            replicas=_RANKS,
            appears=Appears.WITH_FEATURE,
            feature="tokens that were evicted",
            since="0.5.10",
        ),
        counter(
            purpose=Purpose.SUCCEEDED,
            name="sglang:num_requests_total",
            unit="requests finished, aborted ones included",
            appears=Appears.AFTER_TRAFFIC,
            since="0.4.6",
        ),
        counter(
            purpose=Purpose.FAILED,
            name="sglang:num_aborted_requests_total",
            unit="requests",
            appears=Appears.AFTER_TRAFFIC,
            since="0.4.9",
        ),
        transfer(
            purpose=Purpose.KV_TRANSFER_TIME,
            name="sglang:kv_transfer_latency_ms",
            type=MetricType.HISTOGRAM,
            unit="milliseconds",
            scale=0.001,
            replicas=_RANKS,
        ),
        transfer(
            purpose=Purpose.KV_TRANSFER_BYTES,
            name="sglang:kv_transfer_total_mb",
            type=MetricType.HISTOGRAM,
            unit="MiB",
            scale=float(1 << 20),
            replicas=_RANKS,
        ),
        transfer(
            purpose=Purpose.KV_TRANSFER_FAILURES,
            name="sglang:num_transfer_failed_reqs_total",
            type=MetricType.COUNTER,
            unit="requests",
            plus=("sglang:num_bootstrap_failed_reqs_total",),
            replicas=_RANKS,
        ),
        scheduler(
            purpose=Purpose.KV_TRANSFER_WAITING,
            name="sglang:num_prefill_bootstrap_queue_reqs",
            unit="requests",
            plus=(
                "sglang:num_prefill_inflight_queue_reqs",
                "sglang:num_decode_prealloc_queue_reqs",
                "sglang:num_decode_transfer_queue_reqs",
            ),
            since="0.5.15",
        ),
        scheduler(
            purpose=Purpose.KV_TRANSFER_WAITING,
            name="sglang:num_prefill_prealloc_queue_reqs",
            unit="requests",
            plus=(
                "sglang:num_prefill_inflight_queue_reqs",
                "sglang:num_decode_prealloc_queue_reqs",
                "sglang:num_decode_transfer_queue_reqs",
            ),
            since="0.4.9",
            until="0.5.10",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_HITS,
            name="sglang:cached_tokens_total",
            type=MetricType.COUNTER,
            unit="tokens",
            by="cache_source",
            not_where=("cache_source", frozenset({"device", "total"})),  # host, storage and, until 0.5.15, storage_NAME
            since="0.5.10",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_UTILIZATION,
            name="sglang:hicache_host_used_tokens",
            type=MetricType.GAUGE,
            unit="tokens of tokens",
            over="sglang:hicache_host_total_tokens",
            replicas=_RANKS,
            since="0.5.10",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_RETURN_TIME,
            name="sglang:load_back_duration_seconds",
            type=MetricType.HISTOGRAM,
            unit="seconds",
            replicas=_RANKS,
            since="0.5.10",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_RETURN_BYTES,
            name="sglang:load_back_bytes_total",
            type=MetricType.COUNTER,
            unit="bytes",
            since="0.5.23",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_STORED_BYTES,
            name="sglang:hicache_backup_bytes_total",
            type=MetricType.COUNTER,
            unit="bytes",
            since="0.5.23",
        ),
        hicache(
            purpose=Purpose.OFFLOAD_EVICTIONS,
            name="sglang:hicache_dropped_tokens_total",
            type=MetricType.COUNTER,
            unit="tokens",
            by="reason",
            replicas=_RANKS,
            since="0.5.23",
        ),
        scheduler(
            purpose=Purpose.ACCEPTANCE_RATIO,
            name="sglang:spec_accept_rate",
            unit="ratio 0..1, of the last batch; 0 without speculative decoding",
            combine=Combine.MEAN,
            since="0.5.10",
        ),
    ],
    path="/metrics",
    version="0.5.23",
    enabled_by="--enable-metrics (off by default)",
    lacking={
        Purpose.PREFILL_TIME: "sglang:per_stage_req_latency_seconds{stage=...} has its parts",
        Purpose.DECODE_TIME: "subtract time to first token from the whole latency",
        Purpose.REFUSED: "a full queue answers 503 and is counted nowhere",
        Purpose.CONFIG: "GET /server_info",
        Purpose.DRAFT_TOKENS: "only the acceptance rate is on the page",
        Purpose.ACCEPTED_TOKENS: "only the acceptance rate is on the page",
    },
)
