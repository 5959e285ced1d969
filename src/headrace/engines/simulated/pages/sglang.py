"""SGLang's `/metrics`, `/v1/loads` and `/server_info`. Source: the pages of a running SGLang 0.5.23.

Each label set is SGLang's own: the scheduler's gauges carry ranks, the tokenizer manager's histograms do not.
"""

from collections.abc import Callable

from headrace.engines.simulated.exposition import Value, by, counter, gauge, histogram, page, zero
from headrace.engines.simulated.stats import MetricsView

RANKS = {"tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}


def _available(view: MetricsView) -> float:
    used = (view.load.kv_blocks_used + view.load.kv_blocks_cached) * view.block_tokens
    return view.kv_tokens_total - used


def _used(view: MetricsView) -> float:
    return view.load.kv_blocks_used * view.block_tokens


def _streaming(read: Callable[[MetricsView], Value]) -> Callable[[MetricsView], Value]:
    return lambda view: [({"is_streaming": "true"}, read(view))]  # pyright: ignore[reportReturnType] # a histogram


SCHEDULER = (
    gauge("sglang:max_total_num_tokens", lambda v: v.kv_tokens_total),
    gauge("sglang:page_size", lambda v: v.block_tokens),
    gauge("sglang:num_pages", lambda v: v.load.kv_blocks_total),
    gauge("sglang:context_len", lambda v: v.context_tokens),
    gauge("sglang:num_running_reqs", lambda v: v.load.running),
    gauge("sglang:num_queue_reqs", lambda v: v.load.waiting),
    gauge("sglang:num_grammar_queue_reqs", zero),
    gauge("sglang:gen_throughput", lambda v: v.generation_tokens_per_s),
    gauge("sglang:cache_hit_rate", lambda v: v.prefix_hit_ratio),
    gauge("sglang:decode_sum_seq_lens", _used),
    gauge("sglang:token_usage", lambda v: v.load.kv_utilization_ratio),
    gauge("sglang:full_token_usage", lambda v: v.load.kv_utilization_ratio),
    gauge("sglang:swa_token_usage", zero),
    gauge("sglang:mamba_usage", zero),
    gauge("sglang:num_used_tokens", _used),
    gauge("sglang:kv_available_tokens", _available),
    gauge("sglang:kv_evictable_tokens", lambda v: v.load.kv_blocks_cached * v.block_tokens),
    gauge("sglang:kv_used_tokens", _used),
    gauge("sglang:spec_accept_length", zero),
    gauge("sglang:spec_accept_rate", lambda v: v.load.accepted_tokens / max(v.load.draft_tokens, 1)),
    gauge("sglang:num_prefill_bootstrap_queue_reqs", zero),
    gauge("sglang:num_prefill_inflight_queue_reqs", lambda v: v.load.kv_blocks_held),
    gauge("sglang:num_decode_prealloc_queue_reqs", zero),
    gauge("sglang:num_decode_transfer_queue_reqs", zero),
    gauge("sglang:utilization", lambda v: v.load.running / v.max_sequences),
    gauge("sglang:new_token_ratio", lambda _: 0.7),
    gauge("sglang:is_cuda_graph", lambda _: 1.0),
    gauge("sglang:num_retracted_reqs", zero),
    gauge("sglang:num_paused_reqs", zero),
    histogram("sglang:queue_time_seconds", lambda v: v.stats.queue),
    counter(
        "sglang:prefill_effective_tokens_total",
        by(
            "mode",
            input=lambda v: v.load.prompt_tokens - v.load.prefix_hit_tokens,
            device_hit=lambda v: v.load.prefix_hit_tokens - v.load.host_hit_tokens,
            host_hit=lambda v: v.load.host_hit_tokens,
            storage_hit=zero,
        ),
    ),
    counter(
        "sglang:realtime_tokens_total",
        by("mode", prefill_compute=lambda v: v.load.prompt_tokens, decode=lambda v: v.load.generation_tokens),
    ),
    counter("sglang:evicted_tokens_total", lambda v: v.load.evicted_blocks * v.block_tokens),
    counter("sglang:num_retracted_requests_total", lambda v: v.load.preemptions),
)

TRANSFER = (
    counter("sglang:num_bootstrap_failed_reqs_total", zero),
    counter("sglang:num_transfer_failed_reqs_total", lambda v: v.stats.transfer_failures),
)

MANAGER = (
    histogram("sglang:time_to_first_token_seconds", _streaming(lambda v: v.stats.ttft)),
    histogram("sglang:e2e_request_latency_seconds", lambda v: v.stats.e2e),
    histogram("sglang:request_time_per_output_token_seconds", lambda v: v.stats.tpot),
    histogram("sglang:prompt_tokens_histogram", lambda v: v.stats.prompt_tokens),
    histogram("sglang:generation_tokens_histogram", lambda v: v.stats.output_tokens),
    histogram("sglang:inter_token_latency_seconds", lambda v: v.stats.itl),
    counter("sglang:prompt_tokens_total", lambda v: v.load.prompt_tokens),
    counter("sglang:generation_tokens_total", lambda v: v.load.generation_tokens),
    counter("sglang:num_requests_total", lambda v: v.stats.requests),
    counter(
        "sglang:cached_tokens_total",
        by(
            "cache_source",
            device=lambda v: v.load.prefix_hit_tokens - v.load.host_hit_tokens,
            host=lambda v: v.load.host_hit_tokens,
        ),
    ),
    counter("sglang:num_so_requests_total", zero),
    counter("sglang:num_aborted_requests_total", lambda v: v.stats.aborted),
)


def metrics_page(view: MetricsView) -> str:
    labels = {"model_name": view.model, "engine_type": view.engine_type}
    scheduler = [*SCHEDULER, *(TRANSFER if view.has_transfer else ())]
    return page(scheduler, view, {**labels, **RANKS}) + page(MANAGER, view, labels)


def loads(view: MetricsView, version: str) -> dict[str, object]:
    """`/v1/loads` as JSON."""
    load = {
        "dp_rank": 0,
        "num_running_reqs": view.load.running,
        "num_waiting_reqs": view.load.waiting,
        "num_waiting_uncached_tokens": view.load.waiting_tokens,
        "num_used_tokens": int(_used(view)),
        "num_total_tokens": int(_used(view)) + view.load.waiting_tokens,
        "max_total_num_tokens": view.kv_tokens_total,
        "max_running_requests": view.max_sequences,
        "token_usage": view.load.kv_utilization_ratio,
        "gen_throughput": view.generation_tokens_per_s,
        "cache_hit_rate": view.prefix_hit_ratio,
        "utilization": view.load.running / view.max_sequences,
        "disaggregation": {"mode": "null" if view.engine_type == "unified" else view.engine_type},
        "queues": {"waiting": view.load.waiting, "grammar": 0, "paused": 0, "retracted": 0},
    }
    return {"version": version, "loads": [load]}
