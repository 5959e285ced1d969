"""TensorRT engines served by Triton instead of trtllm-serve: its OpenAI frontend over a repository filled at the start.

Read in triton-inference-server/server (python/openai, qa/L0_openai) and TensorRT-LLM's triton_backend; nothing was run.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from headrace.catalog.images import find_image
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.render.core.model import HealthPaths, RenderNote, Severity, Workload
from headrace.fleet.deploy.render.kubernetes.objects import Cluster

MAIN = "/opt/tritonserver/python/openai/openai_frontend/main.py"
REPOSITORY = "/repository"
SERVED_MODEL = "tensorrt_llm_bls"
"""What the frontend calls the pipeline of tokenizer, engine and detokenizer. Source: python/openai/README.md."""
READY = "/health/ready"
"""200 when the engine is ready. Source: openai_frontend/frontend/fastapi/routers/observability.py."""
METRICS_PATH = "/metrics"
FRACTION = "--kv_cache_free_gpu_memory_fraction"
PASSED = frozenset(
    {
        FRACTION,
        "--served_model_name",
        "--host",
        "--port",
        "--max_seq_len",
        "--max_batch_size",
        "--max_num_tokens",
        "--config",
    }
)
"""Flags of trtllm-serve that mean nothing here, or are told in another way."""
OWN_CONFIG = frozenset({"guided_decoding_backend", "return_perf_metrics", "enable_iter_perf_stats"})
"""Keys that the driver always writes."""


def is_triton(cluster: Cluster, workload: Workload) -> bool:
    return workload.engine is EngineKind.TENSORRT_LLM and cluster.pool_settings(workload).tensorrt == "triton"


def by_triton(cluster: Cluster, workload: Workload) -> Workload:
    """Return the workload as Triton serves it; any other as it is."""
    if not is_triton(cluster, workload):
        return workload
    words = (
        *(MAIN, "--model-repository", REPOSITORY, "--backend", "tensorrtllm"),
        *("--tokenizer", str(workload.weights[0].path)),
        *("--host", "0.0.0.0", "--openai-port", str(workload.http_port)),  # noqa: S104 # within the cluster
    )
    return replace(
        workload,
        image=replace(workload.image, command=("python3",)),
        args=words,
        files=(),
        health=HealthPaths(started=READY, ready=READY, alive=READY),
        notes=("Served by Triton's OpenAI frontend; the gateway speaks to it as to any server of that API",),
    )


def build_image(workload: Workload) -> str | None:
    """Return TensorRT-LLM's own image of the version with which Triton's was made."""
    found = find_image(EngineKind.TENSORRT_LLM, "gpu", workload.image.engine_version)
    return found.pinned if found is not None and workload.image.engine_version is not None else None


def triton_notes(cluster: Cluster, workload: Workload) -> Iterator[RenderNote]:
    """Yield what Triton cannot be given; `workload` as trtllm-serve would serve it."""
    if not is_triton(cluster, workload):
        return
    key, pool = f"pools.{workload.pool}", cluster.pool(workload)
    if pool.container.image is None:
        yield _error(
            f"{key}.container.image", "is needed for Triton: nvcr.io/nvidia/tritonserver:YY.MM-trtllm-python-py3"
        )
    if build_image(workload) is None:
        yield _error(
            f"{key}.container.engine_version",
            "is needed for Triton: that of TensorRT-LLM in its image, of which headrace knows an image to build in",
        )
    if pool.options.parallel.devices > 1:
        yield _error(
            f"{key}.parallel",
            f"is {pool.options.parallel.devices} devices: Triton's OpenAI frontend is one process, without MPI",
            "Use tensorrt: engine",
        )
    if cluster.pool_settings(workload).autoscale is not None:
        yield _error(f"{key}.kubernetes.autoscale", "is not rendered for Triton, whose metrics have other names")
    for flag in sorted({word for word in workload.args if word.startswith("--")} - PASSED):
        yield _error(f"{key}.kubernetes.tensorrt", f"is triton, which has no {flag}", "Take out what makes it")
    for name in sorted(_config_keys(workload) - OWN_CONFIG):
        yield _error(f"{key}.kubernetes.tensorrt", f"is triton, which has no {name}", "Take out what makes it")


def free_fraction(arguments: tuple[str, ...]) -> str | None:
    """Return the share of memory for the KV cache, from trtllm-serve's arguments."""
    return arguments[arguments.index(FRACTION) + 1] if FRACTION in arguments else None


def _config_keys(workload: Workload) -> set[str]:
    found: set[str] = set()
    for file in workload.files:
        if file.name.endswith(".yaml"):
            found |= set(msgspec.yaml.decode(file.text, type=dict[str, Any]))
        else:
            found.add(file.name)
    return found


def _error(key: str, message: str, hint: str | None = None) -> RenderNote:
    return RenderNote(severity=Severity.ERROR, key=key, message=message, hint=hint)
