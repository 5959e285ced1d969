"""vLLM's `/metrics`. Source: the pages of a running vLLM 0.32.0, plain and with the NIXL connector."""

from headrace.engines.simulated.exposition import by, counter, gauge, histogram, page, zero
from headrace.engines.simulated.stats import MetricsView


def _by_reason(view: MetricsView) -> list[tuple[dict[str, str], float]]:
    reasons = ("stop", "length", "abort", "error", "repetition")
    return [({"finished_reason": reason}, float(view.stats.finished.get(reason, 0))) for reason in reasons]


def _computed(view: MetricsView) -> float:
    return view.load.prompt_tokens - view.load.prefix_hit_tokens - view.stats.transferred_tokens


def _config(view: MetricsView) -> list[tuple[dict[str, str], float]]:
    facts = {
        "block_size": str(view.block_tokens),
        "cache_dtype": view.kv_dtype,
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.92",
        "kv_cache_layout": "None",
        "kv_cache_size_tokens": str(view.kv_tokens_total),
        "num_gpu_blocks": str(view.load.kv_blocks_total),
        "num_cpu_blocks": str(view.load.host_blocks_total) if view.load.host_blocks_total else "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }
    return [(facts, 1.0)]


PLAIN = (
    counter("vllm:estimated_flops_per_gpu_total", zero),
    counter("vllm:estimated_read_bytes_per_gpu_total", zero),
    counter("vllm:estimated_write_bytes_per_gpu_total", zero),
    gauge("vllm:num_requests_running", lambda v: v.load.running),
    gauge("vllm:num_requests_waiting", lambda v: v.load.waiting),
    gauge("vllm:num_requests_waiting_by_reason", by("reason", capacity=lambda v: v.load.waiting, deferred=zero)),
    gauge("vllm:engine_sleep_state", by("sleep_state", awake=lambda _: 1.0, weights_offloaded=zero, discard_all=zero)),
    gauge("vllm:kv_cache_usage_perc", lambda v: v.load.kv_utilization_ratio),
    counter("vllm:prefix_cache_queries_total", lambda v: v.load.prefix_query_tokens),
    counter("vllm:prefix_cache_hits_total", lambda v: v.load.prefix_hit_tokens),
    counter("vllm:external_prefix_cache_queries_total", lambda v: v.stats.transferred_tokens),
    counter("vllm:external_prefix_cache_hits_total", lambda v: v.stats.transferred_tokens),
    counter("vllm:mm_cache_queries_total", zero),
    counter("vllm:mm_cache_hits_total", zero),
    counter("vllm:num_preemptions_total", lambda v: v.load.preemptions),
    counter("vllm:prompt_tokens_total", lambda v: v.load.prompt_tokens),
    counter(
        "vllm:prompt_tokens_by_source_total",
        by(
            "source",
            local_compute=_computed,
            local_cache_hit=lambda v: v.load.prefix_hit_tokens,
            external_kv_transfer=lambda v: v.stats.transferred_tokens,
        ),
    ),
    counter("vllm:prompt_tokens_cached_total", lambda v: v.load.prefix_hit_tokens + v.stats.transferred_tokens),
    counter(
        "vllm:prompt_tokens_cached_by_source_total",
        by(
            "source",
            device=lambda v: v.load.prefix_hit_tokens - v.load.host_hit_tokens,
            host=lambda v: v.load.host_hit_tokens,
            p2p=lambda v: v.stats.transferred_tokens,
            disk=zero,
            external_unspecified=zero,
        ),
    ),
    counter("vllm:generation_tokens_total", lambda v: v.load.generation_tokens),
    counter("vllm:request_success_total", _by_reason),
    histogram("vllm:request_prompt_tokens", lambda v: v.stats.prompt_tokens),
    histogram("vllm:request_generation_tokens", lambda v: v.stats.output_tokens),
    histogram("vllm:iteration_tokens_total", lambda v: v.stats.step_tokens),
    histogram("vllm:request_max_num_generation_tokens", lambda v: v.stats.output_tokens),
    histogram("vllm:request_params_n", lambda v: v.stats.choices),
    histogram("vllm:request_params_max_tokens", lambda v: v.stats.output_tokens),
    histogram("vllm:time_to_first_token_seconds", lambda v: v.stats.ttft),
    histogram("vllm:inter_token_latency_seconds", lambda v: v.stats.itl),
    histogram("vllm:request_time_per_output_token_seconds", lambda v: v.stats.tpot),
    histogram("vllm:e2e_request_latency_seconds", lambda v: v.stats.e2e),
    histogram("vllm:request_queue_time_seconds", lambda v: v.stats.queue),
    histogram("vllm:request_inference_time_seconds", lambda v: v.stats.inference),
    histogram("vllm:request_prefill_time_seconds", lambda v: v.stats.prefill),
    histogram("vllm:request_decode_time_seconds", lambda v: v.stats.decode),
    gauge("vllm:cache_config_info", _config),
)

TRANSFER = (
    histogram("vllm:nixl_xfer_time_seconds", lambda v: v.stats.transfer),
    histogram("vllm:nixl_post_time_seconds", lambda v: v.stats.transfer),
    histogram("vllm:nixl_bytes_transferred", lambda v: v.stats.transfer_bytes),
    counter("vllm:nixl_num_failed_transfers_total", lambda v: v.stats.transfer_failures),
    counter("vllm:nixl_num_failed_notifications_total", zero),
    counter("vllm:nixl_num_kv_expired_reqs_total", zero),
    gauge(
        "vllm:num_requests_kv_fetch_by_stage",
        by("stage", waiting_to_start=zero, in_progress=zero, completed_waiting=zero),
    ),
)
"""Only with the NIXL connector."""

ADMISSION = counter("vllm:admission_rejections_total", lambda v: _rejections(v))

SPECULATION = (
    counter("vllm:spec_decode_num_draft_tokens_total", lambda v: v.load.draft_tokens),
    counter("vllm:spec_decode_num_accepted_tokens_total", lambda v: v.load.accepted_tokens),
)


def _rejections(view: MetricsView) -> list[tuple[dict[str, str], float]]:
    return [({"reason": "max_num_queued_reqs"}, view.stats.refused), ({"reason": "max_num_queued_tokens"}, 0.0)]


def metrics_page(view: MetricsView) -> str:
    """The page of a vLLM that serves `view.model`."""
    families = [*PLAIN, *(TRANSFER if view.has_transfer else ()), *(SPECULATION if view.load.draft_tokens else ())]
    made = page(families, view, {"model_name": view.model, "engine": "0"}, created=view.started_at_s)
    return made + page([ADMISSION], view, {"model_name": view.model}, created=view.started_at_s)
