"""The one table of drivers: engine kind -> driver, imported on use."""

from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import Driver

DRIVERS = MappingProxyType(
    {
        EngineKind.LLAMACPP: "headrace.engines.llamacpp.driver:LlamacppDriver",
        EngineKind.VLLM: "headrace.engines.vllm.driver:VllmDriver",
        EngineKind.SGLANG: "headrace.engines.sglang.driver:SglangDriver",
        EngineKind.TENSORRT_LLM: "headrace.engines.tensorrt_llm.driver:TensorrtLlmDriver",
        EngineKind.OPENAI: "headrace.engines.openai.driver:OpenaiDriver",
    }
)


@cache
def driver_for(kind: EngineKind) -> Driver:
    """Return the driver of `kind`."""
    module, _, name = DRIVERS[kind].partition(":")
    return cast("Driver", getattr(import_module(module), name)())
