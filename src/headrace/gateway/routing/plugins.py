"""The one table of scorers by kind, and the policy made of those that a model declares."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headrace.declaration.routing_plan import RoutingPlan
from headrace.gateway.routing.core.decision import Policy, Scorer, Weighted
from headrace.gateway.routing.core.usual_costs import mix_of

_SCORERS = "headrace.gateway.routing.core.scorers"
SCORERS: Mapping[str, str] = MappingProxyType(
    {
        "predicted-ttft": f"{_SCORERS}:PredictedTtftScorer",
        "prefill-work": f"{_SCORERS}:PrefillWorkScorer",
        "decode-slowdown": f"{_SCORERS}:DecodeSlowdownScorer",
        "least-loaded": f"{_SCORERS}:LeastLoadedScorer",
        "round-robin": f"{_SCORERS}:RoundRobinScorer",
        "prefix-match": f"{_SCORERS}:PrefixMatchScorer",
        "session-affinity": f"{_SCORERS}:SessionAffinityScorer",
    }
)
"""Kind -> `module:Class`, imported when a model uses it. `declaration/routing_section.py` has the same kinds."""


def make_scorer(kind: str) -> Scorer:
    """The scorer of a kind."""
    module, _, name = SCORERS[kind].partition(":")
    return cast("Scorer", getattr(import_module(module), name)())


def make_policy(plan: RoutingPlan) -> Policy:
    """One model's policy."""
    usual = mix_of([(scorer.kind, scorer.weight) for scorer in plan.scorers])
    usual_offline = mix_of([(scorer.kind, scorer.offline_weight) for scorer in plan.scorers])
    return Policy(
        scorers=tuple(
            Weighted(scorer=make_scorer(scorer.kind), weight=scorer.weight, offline_weight=scorer.offline_weight)
            for scorer in plan.scorers
        ),
        brake_factor=plan.brake_factor,
        sample_above=plan.sample_above,
        uses_prefixes=plan.uses_prefixes,
        usual=None if usual is None or usual_offline is None else (usual, usual_offline),
        has_sessions=any(scorer.kind == "session-affinity" for scorer in plan.scorers),
    )
