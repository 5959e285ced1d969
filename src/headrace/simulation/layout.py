"""How a model lies on its GPUs: bytes of weights and KV on each, and how many KV blocks that leaves."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headrace.catalog.gpus import Gpu
from headrace.catalog.model_configs import ModelConfig

WEIGHT_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8": 1.0,
        "int8": 1.0,
        "awq-int4": 0.5 + 2.5 / 128,  # 4 bits, a scale and a zero point for each group of 128
        "gptq-int4": 0.5 + 2.5 / 128,
        "nvfp4": 0.5 + 1 / 16,  # 4 bits and a byte of scale for each 16
        "mxfp4": 0.5 + 1 / 32,
    }
)
"""Bytes a weight by precision. Embedding and output head stay in 16 bits, as published checkpoints have them."""
KV_BYTES: Mapping[str, float] = MappingProxyType({"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "nvfp4": 0.5 + 1 / 16})
"""Bytes an element of KV by precision."""
COMPUTED_IN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fp8": ("fp8",),
        "int8": ("int8",),
        "nvfp4": ("nvfp4",),
        "mxfp4": ("mxfp4",),
    }
)
"""Tensor-core precisions by weight precision, where the GPU has them; all else is computed in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How many GPUs one replica takes, and how its parts are split over them."""

    tensor: int = 1
    pipeline: int = 1
    is_expert_parallel: bool = False
    """Experts lie whole on the GPUs of the tensor group instead of each being split over all."""
    is_attention_replicated: bool = False
    """Each GPU of the tensor group attends for its own requests (data-parallel attention) with a copy of the weights:
    KV is split by request, not by head."""

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A model in given precisions on given GPUs. Units: bytes, each GPU alone where a name ends in `_per_gpu`."""

    gpu: Gpu
    config: ModelConfig
    layout: Layout = Layout()
    weights: str = "bf16"
    kv: str = "bf16"

    def __post_init__(self) -> None:
        for value, table, key in ((self.weights, WEIGHT_BYTES, "weights"), (self.kv, KV_BYTES, "kv")):
            if value not in table:
                raise ValueError(f"{key}: {value!r} is not a precision; one of {', '.join(table)}")

    @property
    def compute_precision(self) -> str:
        """The precision in which matrices are multiplied."""
        for precision in COMPUTED_IN.get(self.weights, ()):
            if precision in self.gpu.dense_per_s:
                return precision
        return "bf16"

    @property
    def attention_split(self) -> int:
        return 1 if self.layout.is_attention_replicated else self.layout.tensor

    @property
    def kv_split(self) -> float:
        """Into how many parts the KV of a step falls: by head as far as there are heads, or by request."""
        if self.layout.is_attention_replicated:
            return self.layout.tensor
        if self.config.latent is not None:
            return 1
        return min(self.layout.tensor, self.config.kv_heads)

    @property
    def attention_bytes_per_gpu(self) -> float:
        """Attention weights of all layers as one GPU of the tensor group holds them (pipeline aside)."""
        parameters = self.config.layers * self.config.attention_parameters
        return parameters * WEIGHT_BYTES[self.weights] / self.attention_split

    @property
    def dense_bytes_per_gpu(self) -> float:
        """Feed-forward weights, shared experts and routers, likewise."""
        config = self.config
        parameters = (
            config.always_read_parameters - config.head_parameters - config.layers * config.attention_parameters
        )
        return parameters * WEIGHT_BYTES[self.weights] / self.layout.tensor

    @property
    def routed_bytes_per_gpu(self) -> float:
        """Routed experts, likewise."""
        return self.config.routed_parameters * WEIGHT_BYTES[self.weights] / self.layout.tensor

    @property
    def head_bytes_per_gpu(self) -> float:
        return self.config.head_parameters * 2.0 / self.layout.tensor

    @property
    def weight_bytes_per_gpu(self) -> float:
        """All weights that lie on one GPU, taking pipeline stages as equal."""
        embedding = 0.0 if self.config.is_embedding_tied else self.head_bytes_per_gpu
        layers = self.attention_bytes_per_gpu + self.dense_bytes_per_gpu + self.routed_bytes_per_gpu
        return (layers + self.head_bytes_per_gpu + embedding) / self.layout.pipeline

    @property
    def kv_bytes_per_token(self) -> int:
        """What one token's KV takes in the whole replica: what a transfer moves. Windows are not subtracted."""
        return round(self.config.kv_elements_per_token * KV_BYTES[self.kv])

    @property
    def kv_bytes_per_token_per_gpu(self) -> float:
        return self.kv_bytes_per_token / self.kv_split / self.layout.pipeline

    def kv_blocks(self, *, memory_ratio: float, block_tokens: int, reserved_bytes: float = 2 * 2**30) -> int:
        """Return how many KV blocks fit: a share of the GPU's memory less weights and less room for activations.

        Errors: ValueError when nothing is left, with the numbers.
        """
        free_bytes = self.gpu.memory_bytes * memory_ratio - self.weight_bytes_per_gpu - reserved_bytes
        blocks = int(free_bytes / (self.kv_bytes_per_token_per_gpu * block_tokens))
        if blocks < 1:
            raise ValueError(
                f"{self.config.name} in {self.weights} takes {self.weight_bytes_per_gpu / 2**30:.1f} GiB on each of "
                f"{self.layout.gpus} x {self.gpu.name}, of which {memory_ratio:.0%} are "
                f"{self.gpu.memory_bytes * memory_ratio / 2**30:.1f} GiB: no room for KV"
            )
        return blocks
