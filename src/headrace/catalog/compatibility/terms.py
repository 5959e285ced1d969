"""The words of the compatibility matrix: what is combined, what is answered, and why."""

from dataclasses import dataclass
from enum import StrEnum

from headrace.domain.endpoint import EngineKind


class Answer(StrEnum):
    """Whether a combination runs."""

    YES = "yes"
    CONDITIONAL = "conditional"
    """It runs if what the reasons say is done or accepted."""
    NO = "no"


class Precision(StrEnum):
    """How the weights are stored, and, where the name says so, computed."""

    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """Weights and activations in 8-bit floating point (W8A8)."""
    INT8 = "int8"
    """Weights and activations in 8-bit integers (W8A8)."""
    AWQ_INT4 = "awq-int4"
    """4-bit weights, 16-bit activations (W4A16)."""
    GPTQ_INT4 = "gptq-int4"
    """4-bit weights, 16-bit activations (W4A16)."""
    NVFP4 = "nvfp4"
    """4-bit floating point with scales of 16 values, weights and activations."""
    MXFP4 = "mxfp4"
    """4-bit floating point with scales of 32 values; what gpt-oss is published in."""
    BITSANDBYTES = "bitsandbytes"
    """4-bit NF4 or 8-bit, quantized while loading."""
    GGUF_Q4 = "gguf-q4"
    GGUF_Q8 = "gguf-q8"


class KvDtype(StrEnum):
    """How the KV cache is stored."""

    AUTO = "auto"
    """As the model computes."""
    FP8 = "fp8"
    NVFP4 = "nvfp4"
    INT8 = "int8"
    """llama.cpp's q8_0, vLLM's int8_per_token_head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One question."""

    model: str
    """Name as on the Hub, such as `Qwen/Qwen2.5-32B-Instruct`."""
    engine: EngineKind
    gpu: str
    """Name or alias of the GPU catalogue, or `smXY` for a compute capability that it does not list."""
    precision: Precision
    kv_dtype: KvDtype = KvDtype.AUTO
    engine_built_on: str | None = None
    """For TensorRT-LLM up to 1.2: the GPU on which a TensorRT engine was built that is to be used as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One fact that bears on the answer."""

    answer: Answer
    about: str
    """`engine`, `precision`, `model`, `kv-cache` or `engine-file`."""
    text: str
    source: str
    """URL of where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """What would work instead, with one thing changed."""

    engine: EngineKind
    gpu: str
    precision: Precision
    kv_dtype: KvDtype
    answer: Answer
    changes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer to a combination: the worst of its reasons."""

    combination: Combination
    answer: Answer
    compute_capability: str | None
    """Such as "8.0"; None where the GPU is not known."""
    reasons: tuple[Reason, ...]
    instead: tuple[Alternative, ...] = ()
    """Filled where the answer is no."""
