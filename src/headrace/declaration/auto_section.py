"""Names that stand for several models: `auto_models`. One is chosen for each request; how: docs/model-choice.md."""

from typing import Literal, Self

from pydantic import Field, model_validator

from headrace.declaration.shape import Name, Section

Preference = Literal["balanced", "cheapest", "best", "fastest"]


class AutoCandidate(Section):
    """One model that the name may stand for."""

    quality: float = Field(
        default=0.5, ge=0, le=1, description="Your own measure of its answers, from 0 to 1; only differences count."
    )


class AutoWeights(Section):
    """What counts for how much, in seconds of waiting; the lowest sum is chosen."""

    latency: float = Field(default=1.0, ge=0, le=1000, description="What a predicted second counts.")
    offline_latency: float | None = Field(
        default=0.1, ge=0, le=1000, description="What it counts for offline requests; null: as latency."
    )
    price: float = Field(
        default=5.0, ge=0, le=10000, description="Seconds that the price of the dearest candidate is worth."
    )
    quality: float = Field(
        default=10.0, ge=0, le=10000, description="Seconds that the way from quality 0 to quality 1 is worth."
    )


class AutoModel(Section):
    """A name that callers may ask for in place of a model."""

    models: dict[Name, AutoCandidate] = Field(min_length=1, description="The declared models that it stands for.")
    prefer: Preference = Field(
        default="balanced",
        description="balanced: the lowest sum of weights; cheapest, best: the lowest price, or the highest quality, of "
        "those that are predicted to keep ttft_s; fastest: whoever is predicted to be done first.",
    )
    ttft_s: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="Time to the first token that cheapest and best ask for, queue included; where none keeps it, the "
        "fastest is chosen. null: any will do.",
    )
    max_price_per_million: float | None = Field(
        default=None,
        ge=0,
        description="Never a model at which the request is expected to cost more than this per million of its tokens; "
        "models without a price cost nothing.",
    )
    weights: AutoWeights = Field(default=AutoWeights(), description="For balanced, and among equals.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        weights = self.weights
        if self.prefer == "balanced" and not (weights.latency or weights.price or weights.quality):
            raise ValueError("every weight is 0: nothing tells the models apart")
        if self.ttft_s is not None and self.prefer in ("balanced", "fastest"):
            raise ValueError(f"ttft_s means nothing where {self.prefer} is preferred; choose cheapest or best")
        return self
