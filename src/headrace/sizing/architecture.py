"""What sizing must know of a model, whatever file described it: its parameters by kind, and its cache by kind of layer.

Units: elements, tokens and bytes. One value for dense, grouped-query, latent, windowed, mixture and hybrid models.
"""

from dataclasses import dataclass
from enum import StrEnum


class LayerKind(StrEnum):
    """What a layer keeps of the tokens before."""

    FULL = "full"
    """Keys and values of every token."""
    WINDOW = "window"
    """Keys and values of the last tokens alone."""
    LATENT = "latent"
    """One compressed vector a token, the same on every device of a tensor group (MLA)."""
    RECURRENT = "recurrent"
    """A state of fixed size, however long the sequence (linear attention)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayers:
    """Layers that keep the same kind and amount."""

    kind: LayerKind
    count: int
    kv_heads: int = 1
    key_dim: int = 0
    value_dim: int = 0
    window_tokens: int | None = None
    state_bytes: int = 0
    """Of one sequence in one layer; RECURRENT only."""

    @property
    def elements_per_token(self) -> int:
        """In one layer."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Weights by what quantization and tensor parallelism do to them."""

    linear: int
    """Matrices of attention and feed-forward blocks: quantized, split over a tensor group."""
    experts: int = 0
    """Routed experts: likewise."""
    replicated: int = 0
    """Matrices that every device of a tensor group holds whole: MLA's compressions. Quantized."""
    embedding: int = 0
    """Input embedding and, where it is its own matrix, output head. Kept in the computing precision."""
    plain: int = 0
    """Norms, biases, routers, convolutions: not quantized, on every device."""
    vision: int = 0
    """Of an image encoder that comes with the model: not quantized."""

    @property
    def total(self) -> int:
        return self.linear + self.experts + self.replicated + self.embedding + self.plain + self.vision


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How the checkpoint stores its matrices."""

    name: str
    """A word of `catalog.compatibility.terms.Precision`, or `fp32`."""
    matrix_bytes: float
    """Of one quantized weight, scales and zero points included."""
    plain_bytes: float
    """Of one weight that is not quantized."""
    experts_only: bool = False
    """Routed experts alone are quantized (MXFP4 checkpoints)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One model."""

    family: str
    """`model_type` of config.json, or `general.architecture` of a GGUF file."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    """Widest feed-forward block that one token passes: of a mixture, its active experts together."""
    vocabulary: int
    context_tokens: int | None
    """Longest sequence that the model was made for; None where the file does not say."""
    cache: tuple[CacheLayers, ...]
    parameters: Parameters
    weights: WeightFormat
    has_experts: bool = False
    is_assumed: bool = False
    """The family is not known: its weights were counted as those of a Llama-like decoder."""
    weight_bytes: int | None = None
    """What the file says its weights take, where it says so (GGUF)."""

    def cache_layers(self, kind: LayerKind) -> int:
        return sum(group.count for group in self.cache if group.kind is kind)


class UnknownArchitectureError(ValueError):
    """The description lacks what sizing needs, or is of a kind that it does not know; the message names it."""
