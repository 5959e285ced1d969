"""Old names of SGLang. Read in the wheels of 0.2.1, 0.3.6, 0.4.6, 0.4.9, 0.4.10.post2, 0.5.3, 0.5.10, 0.5.15 and
0.5.23: `last` and `gone` are versions of this list, so that a change lies between them.
"""

from functools import partial

from headrace.domain.endpoint import EngineKind
from headrace.engines.names import Change, NameKind, OldName

_COLLECTORS = "sglang/srt/metrics/collector.py; sglang/srt/observability/metrics_collector.py"
_ARGS = "sglang/srt/server_args.py; sglang/srt/arg_groups/fields"

metric = partial(OldName, engine=EngineKind.SGLANG, kind=NameKind.METRIC, source=_COLLECTORS)
flag = partial(OldName, engine=EngineKind.SGLANG, kind=NameKind.FLAG, source=_ARGS)
replaced = partial(flag, change=Change.REPLACED)
removed = partial(flag, change=Change.REMOVED)
_MOE_RUNNER = partial(replaced, now=("--moe-runner-backend",), last="0.5.3", gone="0.5.10")

_METRICS = (
    metric(
        old="sglang:time_per_output_token_seconds",
        now=("sglang:inter_token_latency_seconds", "sglang:request_time_per_output_token_seconds"),
        last="0.3.6",
        gone="0.4.6",
        note="the mean per request came back under the second name by 0.5.23",
    ),
    metric(
        old="sglang:avg_request_queue_latency",
        now=("sglang:queue_time_seconds",),
        change=Change.REPLACED,
        last="0.4.10.post2",
        gone="0.5.3",
        note="a histogram instead of a gauge",
    ),
    metric(
        old="sglang:num_prefill_infight_queue_reqs",
        now=("sglang:num_prefill_inflight_queue_reqs",),
        last="0.4.10.post2",
        gone="0.5.3",
        note="a misspelling was mended",
    ),
    metric(
        old="sglang:num_prefill_prealloc_queue_reqs",
        now=("sglang:num_prefill_bootstrap_queue_reqs",),
        last="0.5.10",
        gone="0.5.15",
    ),
    metric(
        old="sglang:total_retracted_reqs",
        now=("sglang:num_retracted_requests_total",),
        change=Change.REPLACED,
        last="0.4.10.post2",
        gone="0.5.3",
        note="sglang:num_retracted_reqs shows those of the last step",
    ),
    metric(
        old="sglang:num_retractions",
        now=("sglang:num_retracted_requests_total",),
        change=Change.REPLACED,
        last="0.5.10",
        gone="0.5.15",
    ),
    metric(
        old="sglang:cache_config_info",
        now=("sglang:page_size", "sglang:num_pages"),
        change=Change.REPLACED,
        last="0.5.10",
        gone="0.5.15",
        note="numbers of their own instead of labels",
    ),
    metric(old="sglang:engine_startup_time", now=("sglang:startup_time_seconds",), last="0.5.15", gone="0.5.23"),
    metric(
        old="sglang:engine_load_weights_time",
        now=("sglang:startup_time_seconds",),
        change=Change.REPLACED,
        last="0.5.15",
        gone="0.5.23",
        note="one of its phases",
    ),
    metric(
        old="sglang:gpu_execution_seconds_total",
        now=("sglang:forward_execution_seconds_total",),
        last="0.5.10",
        gone="0.5.15",
    ),
    metric(
        old="sglang:num_running_reqs_offline_batch",
        now=("sglang:num_running_reqs",),
        change=Change.REPLACED,
        last="0.5.10",
        gone="0.5.15",
    ),
)

_FLAGS = (
    replaced(
        old="--mem-fraction",
        now=("--mem-fraction-static",),
        change=Change.NEVER,
        last="0.2.1",
        gone="0.2.1",
        note="argparse takes it as an abbreviation for as long as no other flag begins so",
    ),
    replaced(
        old="--enable-dp-attention",
        now=("--attn-dp-size",),
        last="0.5.23",
        gone="0.5.23",
        note="still there but deprecated: --attn-dp-size N instead of --dp-size N --enable-dp-attention",
    ),
    flag(old="--schedule-heuristic", now=("--schedule-policy",), last="0.2.1", gone="0.3.6"),
    flag(old="--stream-output", now=("--incremental-streaming-output",), last="0.5.15", gone="0.5.23"),
    flag(old="--oltp-traces-endpoint", now=("--otlp-traces-endpoint",), last="0.5.3", gone="0.5.10"),
    flag(old="--file-storage-pth", now=("--file-storage-path",), last="0.3.6", gone="0.4.6"),
    flag(old="--impl", now=("--model-impl",), last="0.4.9", gone="0.4.10.post2"),
    flag(old="--max-micro-batch-size", now=("--pp-max-micro-batch-size",), last="0.5.3", gone="0.5.10"),
    flag(old="--disable-disk-cache", now=("--disable-outlines-disk-cache",), last="0.3.6", gone="0.4.6"),
    flag(old="--nsa-prefill-backend", now=("--dsa-prefill-backend",), last="0.5.15", gone="0.5.23"),
    flag(old="--nsa-decode-backend", now=("--dsa-decode-backend",), last="0.5.15", gone="0.5.23"),
    flag(old="--enable-prefill-context-parallel", now=("--enable-prefill-cp",), last="0.5.15", gone="0.5.23"),
    flag(old="--mamba-scheduler-strategy", now=("--mamba-radix-cache-strategy",), last="0.5.15", gone="0.5.23"),
    replaced(
        old="--enable-ep-moe",
        now=("--ep-size",),
        last="0.5.3",
        gone="0.5.10",
        note="with the value of --tp-size",
    ),
    replaced(
        old="--enable-deepep-moe", now=("--moe-a2a-backend",), last="0.5.3", gone="0.5.10", note="with the value deepep"
    ),
    _MOE_RUNNER(old="--enable-flashinfer-trtllm-moe", note="with the value flashinfer_trtllm"),
    _MOE_RUNNER(old="--enable-flashinfer-cutlass-moe", note="with the value flashinfer_cutlass"),
    _MOE_RUNNER(old="--enable-flashinfer-mxfp4-moe", note="with the value flashinfer_mxfp4"),
    _MOE_RUNNER(old="--enable-triton-kernel-moe", note="with the value triton_kernel"),
    replaced(
        old="--disable-flashinfer",
        now=("--attention-backend",),
        last="0.3.6",
        gone="0.4.6",
        note="with the value triton",
    ),
    replaced(
        old="--disable-flashinfer-sampling",
        now=("--sampling-backend",),
        last="0.3.6",
        gone="0.4.6",
        note="with the value pytorch",
    ),
    replaced(
        old="--enable-flashmla",
        now=("--attention-backend",),
        last="0.4.6",
        gone="0.4.9",
        note="with the value flashmla",
    ),
    replaced(old="--hybrid-kvcache-ratio", now=("--swa-full-tokens-ratio",), last="0.5.10", gone="0.5.15"),
    replaced(
        old="--cuda-graph-max-bs",
        now=("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill"),
        last="0.5.15",
        gone="0.5.23",
        note="decode and prefill have settings of their own",
    ),
    removed(old="--disable-mla", last="0.3.6", gone="0.4.6"),
    removed(old="--disable-jump-forward", last="0.3.6", gone="0.4.6", note="jump-forward decoding is gone"),
    removed(old="--enable-double-sparsity", last="0.5.10", gone="0.5.15"),
    removed(old="--torchao-config", last="0.5.10", gone="0.5.15"),
    removed(old="--prefill-round-robin-balance", last="0.5.15", gone="0.5.23"),
)

OLD_NAMES = (*_METRICS, *_FLAGS)
