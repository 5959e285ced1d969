"""What a worker is told of `auto_models`."""

from headrace.declaration.auto_plan import AutoCandidatePlan, compile_auto_model
from headrace.declaration.auto_section import AutoModel


def test_every_default_is_filled_in() -> None:
    """Workers get numbers, and prices as billionths."""
    section = AutoModel.model_validate({"models": {"m": {"quality": 0.5}}, "max_price_per_million": 1.5})
    plan = compile_auto_model("auto", section)
    assert plan.candidates == (AutoCandidatePlan(model="m", quality=0.5),)
    assert plan.max_nanos_per_million == 1_500_000_000
    assert (plan.latency_weight, plan.offline_latency_weight, plan.price_weight) == (1.0, 0.1, 5.0)


def test_offline_requests_may_weigh_latency_alike() -> None:
    """null says: as the others."""
    section = AutoModel.model_validate({"models": {"m": {}}, "weights": {"latency": 3, "offline_latency": None}})
    assert compile_auto_model("auto", section).offline_latency_weight == 3.0
