"""Old names of TensorRT-LLM: the engine builder and its tools are gone, metrics got a prefix. Nothing was run."""

from functools import partial

from headrace.domain.endpoint import EngineKind
from headrace.engines.names import Change, NameKind, OldName
from headrace.engines.tensorrt_llm.metrics import FIRST, NEWEST, PREFIX

_REMOVAL = "docs/source/legacy/tensorrt-backend-removal.md@335107a"
_CLI = "tests/unittest/api_stability/references/trtllm_serve_cli.yaml@029e223"
_SERVER = "tensorrt_llm/serve/openai_server.py"

old_name = partial(OldName, engine=EngineKind.TENSORRT_LLM, last="1.2", gone="1.3")
command = partial(old_name, kind=NameKind.COMMAND, change=Change.REMOVED, source=_REMOVAL)
flag = partial(old_name, kind=NameKind.FLAG, source=_CLI)
metric = partial(old_name, kind=NameKind.METRIC, source=f"{FIRST}; {NEWEST}")

_PREFIXED = (
    "request_success_total",
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "request_queue_time_seconds",
    "kv_cache_hit_rate",
    "kv_cache_utilization",
)
"""Names that only got the prefix."""

OLD_NAMES = (
    command(
        old="trtllm-build",
        now=("trtllm-serve",),
        change=Change.REPLACED,
        note="there is no engine to build: trtllm-serve loads the Hugging Face checkpoint",
    ),
    command(old="trtllm-refit", note="there is no engine to refit"),
    command(old="trtllm-prune", note="there is no engine to prune"),
    command(old="convert_checkpoint.py", note="Hugging Face checkpoints are loaded directly"),
    command(
        old="--backend tensorrt",
        now=("--backend",),
        change=Change.REPLACED,
        note="pytorch is the default and the only stable backend; tensorrt raises ValueError",
    ),
    flag(
        old="--extra_llm_api_options",
        now=("--config",),
        note="still taken as another name of it",
    ),
    flag(
        old="--kv_cache_free_gpu_memory_fraction",
        now=("--free_gpu_memory_fraction",),
        note="still taken as another name of it",
    ),
    flag(
        old="--cluster_size",
        now=("--moe_expert_parallel_size",),
        change=Change.REPLACED,
        note="deprecated, with its other name --moe_cluster_parallel_size",
    ),
    *(metric(old=name, now=(PREFIX + name,)) for name in _PREFIXED),
    metric(
        old="nv_trt_llm_kv_cache_block_metrics",
        now=("trtllm_kv_cache_utilization",),
        change=Change.REPLACED,
        note="of the Triton backend, at :8002/metrics; trtllm-serve has names of its own",
        source="triton-inference-server/tensorrtllm_backend README.md",
    ),
    metric(
        old="nv_trt_llm_request_metrics",
        now=("trtllm_num_requests_running", "trtllm_num_requests_waiting"),
        change=Change.REPLACED,
        note="of the Triton backend, at :8002/metrics; trtllm-serve has names of its own",
        source="triton-inference-server/tensorrtllm_backend README.md",
    ),
    old_name(
        kind=NameKind.FIELD,
        old="kvCacheStats.cacheHitRate",
        now=("trtllm_kv_cache_hit_rate",),
        change=Change.REPLACED,
        note="of the JSON at /metrics, which reading empties; the gauge is at /prometheus/metrics",
        source=_SERVER,
    ),
)
