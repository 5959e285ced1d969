"""What a gateway worker needs of `models.<name>.routing` and `pools.<name>.accepts`: parts of the gateway plan."""

import msgspec

from headrace.declaration.model import Declaration, Pool
from headrace.declaration.routing_section import Routing


class ScorerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One scorer and its weights."""

    kind: str
    weight: float
    offline_weight: float


class RoutingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One model's routing."""

    scorers: tuple[ScorerPlan, ...]
    brake_factor: float | None
    sample_above: int
    uses_prefixes: bool
    kv_tokens: int
    max_blocks: int
    session_field: str
    split: dict[str, float]
    explains_misses: bool = True


class AcceptsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`pools.<name>.accepts`, where it says anything."""

    tenants: frozenset[str]
    classes: frozenset[str]
    min_input_tokens: int | None
    max_input_tokens: int | None
    overflow: bool
    overflows_full: bool = False
    """Also while the pools that a request is for have no free place."""


def compile_routing(declaration: Declaration) -> dict[str, RoutingPlan]:
    """By model."""
    return {name: compile_model_routing(model.routing) for name, model in declaration.models.items()}


def compile_model_routing(routing: Routing) -> RoutingPlan:
    """One model's section, with every default filled in."""
    return RoutingPlan(
        scorers=tuple(
            ScorerPlan(
                kind=scorer.kind,
                weight=scorer.weight,
                offline_weight=scorer.weight if scorer.offline_weight is None else scorer.offline_weight,
            )
            for scorer in routing.scorers
        ),
        brake_factor=routing.brake_factor,
        sample_above=routing.sample_above,
        uses_prefixes=routing.prefix_index.enabled,
        kv_tokens=routing.prefix_index.kv_tokens,
        max_blocks=routing.prefix_index.max_blocks,
        session_field=routing.affinity.field,
        split=dict(routing.split),
        explains_misses=routing.explain_misses,
    )


def compile_accepts(pool: Pool) -> AcceptsPlan | None:
    """None where the pool takes everything, so that routing asks no further."""
    accepts = pool.accepts
    has_rules = accepts.tenants or accepts.classes or accepts.min_input_tokens or accepts.max_input_tokens
    if not has_rules:
        return None
    return AcceptsPlan(
        tenants=frozenset(accepts.tenants),
        classes=frozenset(each.value for each in accepts.classes),
        min_input_tokens=accepts.min_input_tokens,
        max_input_tokens=accepts.max_input_tokens,
        overflow=accepts.overflow,
        overflows_full=accepts.overflow_when == "full",
    )
