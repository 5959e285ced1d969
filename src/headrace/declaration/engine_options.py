"""What a pool declares about its engines, in words that belong to no engine: `pools.<name>.parallel`, `.memory`, ...

Each driver's `launch.py` says what becomes of them. An option at its default is not declared: the engine's own default
holds. An option that an engine lacks is an error (`engines/declared.py`), never dropped.
"""

import re
from typing import Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from headrace.declaration.shape import HIDDEN, PATH, SECRET_NAMES, Name, Section, is_secret_name

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
EMBEDDED_SEQUENCES = 4
EMBEDDED_BATCHED_TOKENS = 128
"""What llama.cpp gets where the pool declares neither. Source: docs/decisions/0006; small steps keep streams smooth on
CPUs."""


class Parallel(Section):
    """How one replica spreads over devices."""

    tensor: int = Field(default=1, ge=1, le=1024, description="Devices that share every layer (tensor parallelism).")
    pipeline: int = Field(default=1, ge=1, le=1024, description="Stages of layers (pipeline parallelism).")
    data: int = Field(default=1, ge=1, le=1024, description="Copies of the model behind one server (data parallelism).")
    expert: int = Field(
        default=1, ge=1, le=4096, description="Devices over which a mixture's experts are spread (expert parallelism)."
    )

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tensor * self.pipeline * self.data


class Memory(Section):
    """Device memory of one replica, and what its KV cache holds."""

    fraction: float | None = Field(
        default=None, gt=0, le=1, description="Share of device memory that the engine may use; null: the engine's own."
    )
    of: Literal["total", "static", "free"] = Field(
        default="total",
        description="What `fraction` is a share of: total: all of the device, for everything; static: all of the "
        "device, for weights and KV cache alone; free: what weights and working memory leave, for the KV cache.",
    )
    device_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Memory of one device, bytes; needed where `fraction` must be converted for an engine.",
    )
    working_bytes: int | None = Field(
        default=None,
        ge=0,
        description="What one device needs beside weights and KV cache (activations, CUDA graphs), bytes; needed where "
        "`fraction` must be converted for an engine.",
    )
    kv_bytes: int | None = Field(
        default=None, ge=1048576, description="Size of the KV cache of one device, bytes, instead of a fraction."
    )
    kv_dtype: Literal["auto", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "nvfp4", "q8_0", "q4_0"] = Field(
        default="auto", description="Number format of the KV cache; auto: the model's."
    )

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.fraction is not None and self.kv_bytes is not None:
            raise ValueError("fraction and kv_bytes both size the KV cache: give one of them")
        return self


class Batching(Section):
    """How many requests an engine works on at once, and in which steps."""

    max_sequences: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Sequences decoded at once by one replica; null: 4 on llamacpp, elsewhere the engine's own.",
    )
    batched_tokens: int | None = Field(
        default=None,
        ge=32,
        le=1048576,
        description="Prompt tokens computed in one step (small keeps running streams smooth); null: 128 on llamacpp, "
        "elsewhere the engine's own.",
    )
    chunked_prefill: bool | None = Field(
        default=None, description="Compute long prompts in pieces between decode steps; null: the engine's own."
    )
    max_queued: int = Field(
        default=1024,
        ge=0,
        le=1048576,
        description="Requests that may wait inside one engine before it refuses more; the gateway's own queue and "
        "limits come first. Only vllm and sglang have such a bound.",
    )


class PrefixCache(Section):
    """Reuse of what was computed for earlier prompts that begin alike."""

    enabled: bool | None = Field(default=None, description="Reuse common beginnings; null: the engine's own.")
    tenant_isolation: bool = Field(
        default=False,
        description="No tenant is served from what another's prompts have left in the cache, its tiers included.",
    )


class Speculative(Section):
    """Speculative decoding: cheap guesses that the model then checks."""

    method: Literal["ngram", "draft", "eagle", "eagle3", "mtp"] = Field(
        description="Where guesses come from: the prompt (ngram), a small model (draft), a trained head (eagle, "
        "eagle3), or the model itself (mtp)."
    )
    model: Name | None = Field(
        default=None, description="Declared model with the draft or head; needed for draft, eagle and eagle3."
    )
    tokens: int = Field(default=4, ge=1, le=64, description="Tokens guessed at once.")

    @model_validator(mode="after")
    def _model_where_needed(self) -> Self:
        if (self.method in ("draft", "eagle", "eagle3")) != (self.model is not None):
            verb = "needs" if self.model is None else "takes no"
            raise ValueError(f"method {self.method} {verb} model")
        return self


class KvOffload(Section):
    """A tier of host memory behind the KV cache."""

    host_bytes: int = Field(ge=1048576, description="Host memory of the tier for one replica, bytes.")
    backend: Literal["native", "lmcache"] = Field(
        default="native",
        description="native: the engine's own (vLLM's offloading, SGLang's HiCache, TensorRT-LLM's host cache); "
        "lmcache: LMCache, which must be installed beside the engine.",
    )
    ttl_s: float | None = Field(
        default=None, gt=0, description="Longest time an unused entry is kept, seconds; null: until room is needed."
    )


class Experts(Section):
    """Balance of a mixture's experts over devices."""

    balance: bool = Field(default=False, description="Move experts between devices as load changes (EPLB).")
    redundant: int = Field(default=0, ge=0, le=4096, description="Copies of busy experts; needs `balance`.")

    @model_validator(mode="after")
    def _redundant_is_balanced(self) -> Self:
        if self.redundant and not self.balance:
            raise ValueError("redundant experts need balance: true")
        return self


class StructuredOutput(Section):
    """Output held to a schema or grammar."""

    backend: Literal["xgrammar", "llguidance", "outlines"] | None = Field(
        default=None, description="Library that enforces it; null: the engine's own, xgrammar on tensorrt-llm."
    )


class Parsers(Section):
    """Which form of tool calls and reasoning the model writes. Names differ between engines: see `per_engine`."""

    tool: str | None = Field(default=None, min_length=1, description="The engine's name of the tool-call parser.")
    reasoning: str | None = Field(default=None, min_length=1, description="The engine's name of the reasoning parser.")


class Telemetry(Section):
    """What an engine tells about itself."""

    metrics: bool = Field(default=True, description="Expose metrics; the gateway's load figures need them.")
    kv_events: bool = Field(
        default=False,
        description="Tell changes of the KV cache, which the gateway follows: docs/routing.md. vLLM and SGLang use the "
        "engine's port + 10000 and + 15000, and need the extra kv-events (docs/installation.md).",
    )
    traces: str | None = Field(
        default=None, min_length=1, description="OTLP endpoint for the engine's traces, such as http://collector:4317."
    )
    log_requests: bool = Field(
        default=False, description="Let the engine log requests; prompts then reach its log (privacy)."
    )


class Disaggregation(Section):
    """Prefill and decode on different replicas. The engine's part: its role, and what carries the KV cache."""

    role: Literal["prefill", "decode", "both"] = Field(description="What the replicas of this pool do.")
    connector: Literal["nixl", "mooncake", "ucx", "mpi"] = Field(
        default="nixl", description="What transfers the KV cache between replicas."
    )


class Runtime(Section):
    """The engine's program and the machine it runs on."""

    python: str | None = Field(
        default=None,
        min_length=1,
        description="Python of the environment in which the engine is installed; null: its program on PATH.",
        json_schema_extra=PATH,
    )
    command: tuple[str, ...] = Field(
        default=(),
        description="Words that start the engine's program, in place of `python`, such as [docker, exec, engines, "
        "vllm]; SIGTERM must reach the engine.",
    )
    env: dict[str, str] = Field(
        default={},
        description="Environment variables of the engine's process, as text (quote numbers); secrets as ${env:NAME}.",
        json_schema_extra=SECRET_NAMES,
    )
    device: Literal["gpu", "cpu"] = Field(default="gpu", description="What the engine computes on.")

    @model_validator(mode="after")
    def _one_program(self) -> Self:
        if self.python is not None and self.command:
            raise ValueError("python and command both name the program: give one of them")
        return self

    @field_validator("env")
    @classmethod
    def _names_of_variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if _VARIABLE.fullmatch(name) is None:  # shells, units and manifests take no other, or run them
                raise ValueError(f'"{name}" is not the name of an environment variable')
        return value

    @field_serializer("env", when_used="json")
    def _hide(self, value: dict[str, str]) -> dict[str, str]:
        return {name: HIDDEN if is_secret_name(name) else text for name, text in value.items()}


class EngineOptions(Section):
    """All of the above together: what a replica's command line is made from, as it holds for the pool's engine."""

    parallel: Parallel = Field(default=Parallel(), description="How one replica spreads over devices.")
    memory: Memory = Field(default=Memory(), description="Device memory and KV cache.")
    batching: Batching = Field(default=Batching(), description="Requests at once, and steps.")
    prefix_cache: PrefixCache = Field(default=PrefixCache(), description="Reuse of common beginnings of prompts.")
    quantization: str | None = Field(
        default=None,
        min_length=1,
        description="Number format of the weights where the checkpoint does not say it, in the engine's words (fp8, "
        "awq, ...); null: as the checkpoint says.",
    )
    speculative: Speculative | None = Field(default=None, description="Speculative decoding; null: none.")
    kv_offload: KvOffload | None = Field(default=None, description="Host memory behind the KV cache; null: none.")
    experts: Experts = Field(default=Experts(), description="Balance of a mixture's experts.")
    structured_output: StructuredOutput = Field(default=StructuredOutput(), description="Output held to a schema.")
    parsers: Parsers = Field(default=Parsers(), description="Forms of tool calls and reasoning.")
    telemetry: Telemetry = Field(default=Telemetry(), description="What the engine tells about itself.")
    disaggregation: Disaggregation | None = Field(
        default=None, description="Prefill and decode on different replicas; null: each replica does both."
    )
    runtime: Runtime = Field(default=Runtime(), description="The engine's program, and the device it computes on.")
    extra_args: tuple[str, ...] = Field(
        default=(),
        description="More arguments for the engine's command line; none that an option or the gateway sets.",
    )
