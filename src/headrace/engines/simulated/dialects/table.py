"""The one table of dialects, and what a prefill answer carries in each."""

from importlib import import_module
from types import MappingProxyType

from headrace.engines.simulated.config import DialectKind, EngineConfig
from headrace.engines.simulated.dialects import tensorrt_llm, vllm
from headrace.engines.simulated.dialects.contract import Dialect

DIALECTS = MappingProxyType(
    {
        DialectKind.VLLM: "vllm:VllmDialect",
        DialectKind.SGLANG: "sglang:SglangDialect",
        DialectKind.TENSORRT_LLM: "tensorrt_llm:TensorrtLlmDialect",
        DialectKind.TRITON: "tensorrt_llm:TritonDialect",
        DialectKind.LLAMACPP: "llamacpp:LlamacppDialect",
    }
)


def dialect_for(config: EngineConfig) -> Dialect:
    """The dialect that `config` names."""
    module, _, name = DIALECTS[config.dialect].partition(":")
    return getattr(import_module(f"headrace.engines.simulated.dialects.{module}"), name)(config)


def held_members(
    config: EngineConfig, *, key: str, port: int, prompt_tokens: int, first_tokens: list[int]
) -> tuple[dict[str, object], dict[str, object]]:
    """What a prefill answer says about where its KV is: members of the answer, and of its choice."""
    match config.dialect:
        case DialectKind.VLLM:
            return vllm.hold_members(config, key=key, port=port, prompt_tokens=prompt_tokens), {}
        case DialectKind.TENSORRT_LLM | DialectKind.TRITON:
            return {}, tensorrt_llm.hold_members(config, key=key, port=port, first_tokens=first_tokens)
        case _:
            return {}, {}
