"""Which path of each engine answers which question, and how long loading is expected to take."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.domain.endpoint import EngineKind
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.render.core.model import HealthPaths

ALIVE_PATHS: Mapping[EngineKind, str] = MappingProxyType(
    {
        EngineKind.VLLM: "/health",
        EngineKind.SGLANG: "/ping",
        EngineKind.TENSORRT_LLM: "/health",
        EngineKind.LLAMACPP: "/health",
    }
)
"""200 while the engine lives, without a scheduler slot. SGLang's /health generates a token, and is 503 while draining;
TensorRT-LLM can stay up with 503 for ever after a rank's crash, which is what this finds.

Source: vLLM entrypoints/serve/instrumentator/health.py, SGLang srt/entrypoints/http_server.py, TensorRT-LLM
tensorrt_llm/serve/openai_server.py and its issue 18663, llama.cpp tools/server/README.md."""

START_S: Mapping[EngineKind, float] = MappingProxyType(
    {EngineKind.VLLM: 90.0, EngineKind.SGLANG: 90.0, EngineKind.TENSORRT_LLM: 120.0, EngineKind.LLAMACPP: 5.0}
)
"""Imports, compilation, CUDA graphs and warm-up, beside reading the weights. Assumed, not measured: a first guess that
only spaces probes; the bound is load_timeout_s."""


def health_paths(engine: EngineKind) -> HealthPaths:
    """Return the paths of `engine`; readiness is the one that the gateway's own probes use."""
    ready = driver_for(engine).ready_path
    return HealthPaths(started=ready, ready=ready, alive=ALIVE_PATHS[engine])


def expected_load_s(engine: EngineKind, weight_bytes: int | None, read_bytes_per_s: float) -> float:
    """Guess how long a start takes."""
    return START_S[engine] + (weight_bytes or 0) / read_bytes_per_s
