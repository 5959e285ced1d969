"""What a gateway worker is told of routing."""

from headrace.declaration.gateway_plan import compile_gateway_plan
from headrace.declaration.model import Declaration

POOL = {"model": "m", "engine": "vllm", "endpoints": ["http://127.0.0.1:1"]}


def test_every_model_has_a_plan_and_only_choosy_pools_have_rules() -> None:
    """Defaults are filled in; a pool that takes everything costs routing no look."""
    declaration = Declaration.model_validate(
        {
            "models": {
                "m": {"routing": {"scorers": [{"kind": "least-loaded", "weight": 2}], "split": {"a": 1}}},
                "n": {},
            },
            "pools": {"a": POOL, "b": {**POOL, "accepts": {"tenants": ["t"], "classes": ["offline"]}}},
            "tenants": {"t": {}},
        }
    )
    plan = compile_gateway_plan(declaration, {}, revision=1)
    (scorer,) = plan.routing["m"].scorers
    assert (scorer.kind, scorer.weight, scorer.offline_weight) == ("least-loaded", 2, 2)
    assert plan.routing["m"].split == {"a": 1}
    assert len(plan.routing["n"].scorers) == 3
    first, second = plan.pools
    assert first.accepts is None
    assert second.accepts is not None
    assert (second.accepts.tenants, second.accepts.classes) == (frozenset({"t"}), frozenset({"offline"}))
