"""What a gateway worker needs of `auto_models`: a part of the gateway plan."""

import msgspec

from headrace.declaration.auto_section import AutoModel
from headrace.declaration.model import Declaration
from headrace.declaration.tenancy_plan import nanos


class AutoCandidatePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One model that the name may stand for."""

    model: str
    quality: float


class AutoModelPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One name that stands for several models."""

    name: str
    candidates: tuple[AutoCandidatePlan, ...]
    prefer: str
    ttft_s: float | None
    max_nanos_per_million: int | None
    latency_weight: float
    offline_latency_weight: float
    price_weight: float
    quality_weight: float


def compile_auto_models(declaration: Declaration) -> tuple[AutoModelPlan, ...]:
    """In the declared order."""
    return tuple(compile_auto_model(name, section) for name, section in declaration.auto_models.items())


def compile_auto_model(name: str, section: AutoModel) -> AutoModelPlan:
    """One section, with every default filled in."""
    weights, most = section.weights, section.max_price_per_million
    return AutoModelPlan(
        name=name,
        candidates=tuple(
            AutoCandidatePlan(model=model, quality=candidate.quality) for model, candidate in section.models.items()
        ),
        prefer=section.prefer,
        ttft_s=section.ttft_s,
        max_nanos_per_million=None if most is None else nanos(most),
        latency_weight=weights.latency,
        offline_latency_weight=weights.latency if weights.offline_latency is None else weights.offline_latency,
        price_weight=weights.price,
        quality_weight=weights.quality,
    )
