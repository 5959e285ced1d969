"""TensorRT-LLM's `/prometheus/metrics` and iteration statistics, and Triton's `/metrics` with the TensorRT-LLM backend.

Source: tensorrt_llm/metrics/collector.py@050f80d; the metrics of Triton's tensorrtllm_backend. Read, never run.
"""

from headrace.engines.simulated.exposition import Value, by, counter, gauge, histogram, page, zero
from headrace.engines.simulated.stats import MetricsView


def _config(view: MetricsView) -> Value:
    facts = {"page_size": str(view.block_tokens), "enable_block_reuse": "True", "cache_dtype": view.kv_dtype}
    return [(facts, 1.0)]


TRTLLM = (
    gauge("trtllm_num_requests_running", lambda v: v.load.running),
    gauge("trtllm_num_requests_waiting", lambda v: v.load.waiting),
    gauge("trtllm_num_paused_requests", zero),
    gauge("trtllm_max_num_active_requests", lambda v: v.max_sequences),
    gauge("trtllm_kv_cache_utilization", lambda v: v.load.kv_utilization_ratio),
    gauge("trtllm_kv_cache_host_utilization", lambda v: v.load.host_blocks_used / max(v.load.host_blocks_total, 1)),
    gauge("trtllm_kv_cache_hit_rate", lambda v: v.prefix_hit_ratio),
    gauge("trtllm_kv_cache_max_blocks", lambda v: v.load.kv_blocks_total),
    gauge("trtllm_kv_cache_free_blocks", lambda v: v.load.kv_blocks_total - v.load.kv_blocks_used),
    gauge("trtllm_kv_cache_used_blocks", lambda v: v.load.kv_blocks_used),
    counter("trtllm_kv_cache_reused_blocks_total", lambda v: v.load.prefix_hit_tokens // v.block_tokens),
    counter(
        "trtllm_kv_cache_missed_blocks_total",
        lambda v: (v.load.prefix_query_tokens - v.load.prefix_hit_tokens) // v.block_tokens,
    ),
    counter("trtllm_prompt_cached_tokens_total", lambda v: v.load.prefix_hit_tokens),
    counter("trtllm_prompt_tokens_total", lambda v: v.load.prompt_tokens),
    counter("trtllm_generation_tokens_total", lambda v: v.load.generation_tokens),
    counter(
        "trtllm_prompt_cache_hit_tokens_total",
        by(
            "cache_tier",
            gpu=lambda v: v.load.prefix_hit_tokens - v.load.host_hit_tokens,
            host=lambda v: v.load.host_hit_tokens,
        ),
    ),
    counter("trtllm_kv_cache_onboard_bytes_total", zero),
    counter("trtllm_kv_cache_offload_bytes_total", zero),
    counter("trtllm_spec_decode_num_draft_tokens_total", lambda v: v.load.draft_tokens),
    counter("trtllm_spec_decode_num_accepted_tokens_total", lambda v: v.load.accepted_tokens),
    histogram("trtllm_time_to_first_token_seconds", lambda v: v.stats.ttft),
    histogram("trtllm_time_per_output_token_seconds", lambda v: v.stats.tpot),
    histogram("trtllm_e2e_request_latency_seconds", lambda v: v.stats.e2e),
    histogram("trtllm_request_queue_time_seconds", lambda v: v.stats.queue),
    histogram("trtllm_request_prefill_time_seconds", lambda v: v.stats.prefill),
    histogram("trtllm_request_decode_time_seconds", lambda v: v.stats.decode),
    histogram("trtllm_request_inference_time_seconds", lambda v: v.stats.inference),
    counter(
        "trtllm_request_success_total",
        lambda v: [({"finished_reason": reason}, float(count)) for reason, count in v.stats.finished.items()],
    ),
    counter("trtllm_request_error_total", lambda v: v.stats.failed),
    gauge("trtllm_kv_cache_config_info", _config),
)


def _memory(view: MetricsView) -> Value:
    return [({"memory_type": kind}, 0.0) for kind in ("gpu", "cpu", "pinned")]


TRITON_SERVER = (
    counter("nv_inference_request_success", lambda v: sum(v.stats.finished.values())),
    counter("nv_inference_request_failure", lambda v: v.stats.failed + v.stats.refused),
    counter("nv_inference_count", lambda v: v.stats.requests),
    counter("nv_inference_exec_count", lambda v: v.stats.requests),
    counter("nv_inference_request_duration_us", lambda v: v.stats.e2e.sum * 1e6),
    counter("nv_inference_queue_duration_us", lambda v: v.stats.queue.sum * 1e6),
    counter("nv_inference_compute_infer_duration_us", lambda v: v.stats.inference.sum * 1e6),
    gauge("nv_inference_pending_request_count", lambda v: v.load.waiting),
)

TRITON_BACKEND = (
    gauge(
        "nv_trt_llm_request_metrics",
        by(
            "request_type",
            waiting=lambda v: v.load.waiting,
            context=zero,
            scheduled=lambda v: v.load.running,
            max=lambda v: v.max_sequences,
            active=lambda v: v.load.running + v.load.waiting,
        ),
    ),
    gauge("nv_trt_llm_runtime_memory_metrics", _memory),
    gauge(
        "nv_trt_llm_kv_cache_block_metrics",
        by(
            "kv_cache_block_type",
            max=lambda v: v.load.kv_blocks_total,
            free=lambda v: v.load.kv_blocks_total - v.load.kv_blocks_used,
            used=lambda v: v.load.kv_blocks_used,
            tokens_per=lambda v: v.block_tokens,
            fraction=lambda v: v.load.kv_utilization_ratio,
        ),
    ),
    gauge(
        "nv_trt_llm_inflight_batcher_metrics",
        by(
            "inflight_batcher_specific_metric",
            total_context_tokens=zero,
            generation_requests=lambda v: v.load.running,
            micro_batch_id=zero,
            paused_requests=zero,
        ),
    ),
)


def metrics_page(view: MetricsView) -> str:
    return page(TRTLLM, view, {"model_name": view.model, "engine_type": "trtllm"})


def triton_page(view: MetricsView) -> str:
    labels = {"model": view.model, "version": "1"}
    return page(TRITON_SERVER, view, labels) + page(TRITON_BACKEND, view, labels)


def iteration_statistics(view: MetricsView, since_iteration: int) -> list[dict[str, object]]:
    """What one read of `/metrics` takes out of the queue: nothing where no iteration has run since the last."""
    if view.iterations == since_iteration:
        return []
    return [
        {
            "iter": view.iterations,
            "iterLatencyMS": 0.0,
            "numActiveRequests": view.load.running,
            "numQueuedRequests": view.load.waiting,
            "maxNumActiveRequests": view.max_sequences,
            "kvCacheStats": {
                "maxNumBlocks": view.load.kv_blocks_total,
                "freeNumBlocks": view.load.kv_blocks_total - view.load.kv_blocks_used,
                "usedNumBlocks": view.load.kv_blocks_used,
                "tokensPerBlock": view.block_tokens,
                "reusedBlocks": view.load.prefix_hit_tokens // view.block_tokens,
                "missedBlocks": (view.load.prefix_query_tokens - view.load.prefix_hit_tokens) // view.block_tokens,
                "cacheHitRate": view.prefix_hit_ratio,
            },
        }
    ]
