"""Old names of vLLM. Read in the sources of 0.2.7, 0.4.3, 0.6.6, 0.8.5, 0.9.2, 0.10.2, 0.11.0, 0.12.0, 0.16.0, 0.24.0
and 0.33.0: `last` and `gone` are versions of this list, so that a change lies between them.
"""

from functools import partial

from headrace.domain.endpoint import EngineKind
from headrace.engines.names import Change, NameKind, OldName

_V0_METRICS = "vllm/engine/metrics.py; vllm/v1/metrics/loggers.py"
_ARGS = "vllm/engine/arg_utils.py"

metric = partial(OldName, engine=EngineKind.VLLM, kind=NameKind.METRIC, source=_V0_METRICS)
flag = partial(OldName, engine=EngineKind.VLLM, kind=NameKind.FLAG, source=_ARGS)
replaced = partial(flag, change=Change.REPLACED)
removed = partial(flag, change=Change.REMOVED)

_SPECULATIVE = partial(replaced, now=("--speculative-config",), last="0.6.6", gone="0.8.5")
_STRUCTURED = partial(replaced, now=("--structured-outputs-config",), last="0.11.0", gone="0.12.0")
_EPLB = partial(replaced, now=("--eplb-config",), last="0.11.0", gone="0.12.0")

_METRICS = (
    metric(
        old="vllm:gpu_cache_usage_perc",
        now=("vllm:kv_cache_usage_perc",),
        last="0.11.0",
        gone="0.12.0",
        note="both were there from 0.9.2 on; a ratio 0..1, whatever its name",
    ),
    metric(
        old="vllm:cpu_cache_usage_perc",
        now=("vllm:kv_offload_cpu_cache_usage_perc",),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="the swap space it measured is gone; the new one is there only with KV offloading",
    ),
    metric(
        old="vllm:time_per_output_token_seconds",
        now=("vllm:inter_token_latency_seconds", "vllm:request_time_per_output_token_seconds"),
        last="0.12.0",
        gone="0.16.0",
        note="it held the gap between tokens; the mean per request is the second",
    ),
    metric(
        old="vllm:gpu_prefix_cache_hit_rate",
        now=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="divide the rates of the two counters, which count tokens",
    ),
    metric(
        old="vllm:cpu_prefix_cache_hit_rate",
        now=("vllm:external_prefix_cache_hits_total", "vllm:external_prefix_cache_queries_total"),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="there only with a KV connector",
    ),
    metric(
        old="vllm:gpu_prefix_cache_queries_total",
        now=("vllm:prefix_cache_queries_total",),
        last="0.11.0",
        gone="0.12.0",
    ),
    metric(old="vllm:gpu_prefix_cache_hits_total", now=("vllm:prefix_cache_hits_total",), last="0.11.0", gone="0.12.0"),
    metric(
        old="cache_info.cache_hit_rate",
        now=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", "sglang:cache_hit_rate"),
        change=Change.NEVER,
        last="0.2.7",
        gone="0.2.7",
        note="no source of vLLM, SGLang or TensorRT-LLM that was read has it; it is met in published advice",
    ),
    metric(
        old="vllm:num_requests_swapped",
        now=("vllm:num_preemptions_total",),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="requests are preempted and computed again instead of swapped",
    ),
    metric(
        old="vllm:avg_prompt_throughput_toks_per_s",
        now=("vllm:prompt_tokens_total",),
        change=Change.REPLACED,
        last="0.6.6",
        gone="0.8.5",
        note="take the rate of the counter",
    ),
    metric(
        old="vllm:avg_generation_throughput_toks_per_s",
        now=("vllm:generation_tokens_total",),
        change=Change.REPLACED,
        last="0.6.6",
        gone="0.8.5",
        note="take the rate of the counter",
    ),
    metric(old="vllm:time_in_queue_requests", now=("vllm:request_queue_time_seconds",), last="0.8.5", gone="0.9.2"),
    metric(
        old="vllm:model_forward_time_milliseconds",
        now=("vllm:request_inference_time_seconds",),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="in seconds, and with the waits between steps",
    ),
    metric(
        old="vllm:model_execute_time_milliseconds",
        now=("vllm:request_inference_time_seconds",),
        change=Change.REPLACED,
        last="0.8.5",
        gone="0.9.2",
        note="in seconds, and with the waits between steps",
    ),
    metric(
        old="vllm:spec_decode_draft_acceptance_rate",
        now=("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"),
        change=Change.REPLACED,
        last="0.9.2",
        gone="0.10.2",
        note="divide the rates of the two counters",
        source="vllm/engine/metrics.py; vllm/v1/spec_decode/metrics.py",
    ),
    metric(
        old="vllm:spec_decode_efficiency",
        now=("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_drafts_total"),
        change=Change.REPLACED,
        last="0.9.2",
        gone="0.10.2",
        source="vllm/engine/metrics.py; vllm/v1/spec_decode/metrics.py",
    ),
    metric(
        old="vllm:spec_decode_num_emitted_tokens_total",
        now=("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_drafts_total"),
        change=Change.REPLACED,
        last="0.9.2",
        gone="0.10.2",
        note="emitted tokens are the accepted ones and one per draft",
        source="vllm/engine/metrics.py; vllm/v1/spec_decode/metrics.py",
    ),
    metric(
        old="vllm:request_params_best_of",
        change=Change.REMOVED,
        last="0.4.3",
        gone="0.6.6",
        note="best_of is no parameter any more",
    ),
    metric(
        old="vllm:kv_offload_total_bytes",
        now=("vllm:kv_offload_load_bytes_total", "vllm:kv_offload_store_bytes_total"),
        change=Change.REPLACED,
        last="0.33.0",
        gone="0.24.0",
        note="still there but deprecated; its label transfer_type became two metrics",
        source="vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py",
    ),
    metric(
        old="vllm:kv_offload_total_time",
        now=("vllm:kv_offload_load_time_total", "vllm:kv_offload_store_time_total"),
        change=Change.REPLACED,
        last="0.33.0",
        gone="0.24.0",
        note="still there but deprecated; its label transfer_type became two metrics",
        source="vllm/distributed/kv_transfer/kv_connector/v1/offloading/metrics.py",
    ),
)

_FLAGS = (
    removed(old="--swap-space", last="0.16.0", gone="0.24.0", note="requests are computed again instead of swapped"),
    _STRUCTURED(old="--guided-decoding-backend", note='as {"backend": ...}'),
    _STRUCTURED(old="--guided-decoding-disable-fallback", note='as {"disable_fallback": true}'),
    _STRUCTURED(old="--guided-decoding-disable-any-whitespace", note='as {"disable_any_whitespace": true}'),
    _STRUCTURED(
        old="--guided-decoding-disable-additional-properties", note='as {"disable_additional_properties": true}'
    ),
    removed(
        old="--num-scheduler-steps", last="0.9.2", gone="0.10.2", note="the V1 engine has no multi-step scheduling"
    ),
    removed(
        old="--multi-step-stream-outputs", last="0.9.2", gone="0.10.2", note="it belonged to multi-step scheduling"
    ),
    removed(old="--use-v2-block-manager", last="0.9.2", gone="0.10.2", note="there is one block manager"),
    removed(old="--preemption-mode", last="0.10.2", gone="0.11.0", note="preempted requests are always computed again"),
    removed(old="--num-lookahead-slots", last="0.11.0", gone="0.12.0", note="set by the speculative method"),
    removed(old="--scheduler-delay-factor", last="0.10.2", gone="0.11.0"),
    removed(old="--disable-async-output-proc", last="0.10.2", gone="0.11.0"),
    removed(old="--disable-frontend-multiprocessing", last="0.9.2", gone="0.10.2"),
    removed(old="--enable-prompt-adapter", last="0.9.2", gone="0.10.2", note="prompt adapters are gone"),
    removed(old="--tokenizer-pool-size", last="0.9.2", gone="0.10.2"),
    removed(old="--max-num-partial-prefills", last="0.24.0", gone="0.33.0"),
    removed(old="--calculate-kv-scales", last="0.24.0", gone="0.33.0", note="calibrate with llm-compressor instead"),
    removed(old="--enable-lora-bias", last="0.11.0", gone="0.12.0"),
    removed(old="--lora-extra-vocab-size", last="0.11.0", gone="0.12.0"),
    removed(old="--quantization-param-path", last="0.6.6", gone="0.8.5", note="KV scales come with the checkpoint"),
    removed(old="--device", last="0.9.2", gone="0.10.2", note="the build that is installed decides"),
    removed(old="--enable-reasoning", last="0.9.2", gone="0.10.2", note="naming --reasoning-parser turns reasoning on"),
    _SPECULATIVE(old="--speculative-model", note='as {"model": ...}, or --spec-model'),
    _SPECULATIVE(old="--num-speculative-tokens", note='as {"num_speculative_tokens": ...}, or --spec-tokens'),
    _SPECULATIVE(old="--ngram-prompt-lookup-max", note='as {"method": "ngram", "prompt_lookup_max": ...}'),
    _SPECULATIVE(old="--speculative-draft-tensor-parallel-size", note='as {"draft_tensor_parallel_size": ...}'),
    _EPLB(old="--num-redundant-experts", note='as {"num_redundant_experts": ...}'),
    _EPLB(old="--eplb-window-size", note='as {"window_size": ...}'),
    _EPLB(old="--eplb-step-interval", note='as {"step_interval": ...}'),
    replaced(
        old="--task",
        now=("--runner", "--convert"),
        last="0.12.0",
        gone="0.16.0",
        note="--runner generate or pooling, --convert embed, classify or reward",
    ),
    replaced(
        old="--disable-log-requests",
        now=("--enable-log-requests",),
        last="0.16.0",
        gone="0.24.0",
        note="requests are not logged unless asked for",
        source="vllm/engine/arg_utils.py; vllm/entrypoints/openai/cli_args.py",
    ),
    replaced(
        old="--max-seq-len-to-capture",
        now=("--max-cudagraph-capture-size",),
        last="0.10.2",
        gone="0.11.0",
        note="it bounds batch sizes, not lengths",
    ),
    replaced(old="--max-context-len-to-capture", now=("--max-cudagraph-capture-size",), last="0.4.3", gone="0.6.6"),
    flag(old="--cuda-graph-sizes", now=("--cudagraph-capture-sizes",), last="0.12.0", gone="0.16.0"),
    replaced(
        old="--rope-scaling",
        now=("--hf-overrides",),
        last="0.11.0",
        gone="0.12.0",
        note="as part of the model's configuration",
    ),
    replaced(
        old="--rope-theta",
        now=("--hf-overrides",),
        last="0.11.0",
        gone="0.12.0",
        note="as part of the model's configuration",
    ),
    flag(old="--override-pooler-config", now=("--pooler-config",), last="0.11.0", gone="0.12.0"),
    replaced(
        old="--disable-mm-preprocessor-cache",
        now=("--mm-processor-cache-gb",),
        last="0.12.0",
        gone="0.16.0",
        note="0 turns the cache off",
    ),
    replaced(
        old="--enable-multimodal-encoder-data-parallel",
        now=("--mm-encoder-tp-mode",),
        last="0.12.0",
        gone="0.16.0",
        note="with the value data",
    ),
    replaced(
        old="--worker-use-ray",
        now=("--distributed-executor-backend",),
        last="0.6.6",
        gone="0.8.5",
        note="with the value ray",
    ),
)

OLD_NAMES = (*_METRICS, *_FLAGS)
