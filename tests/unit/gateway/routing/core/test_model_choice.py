"""The order in which models are tried, and what is known of how fast they answer."""

from typing import Any

import pytest

from headrace.declaration.auto_plan import AutoModelPlan, compile_auto_model
from headrace.declaration.auto_section import AutoModel
from headrace.gateway.routing.core.candidate import Candidate, PoolSpeed
from headrace.gateway.routing.core.model_choice import (
    STALE_S,
    ModelPace,
    Offer,
    Predicted,
    predict,
    rank,
    reason_of,
)
from headrace.gateway.routing.core.prefix_index import PrefixIndex

SIZES = {"large": {"quality": 0.9}, "middle": {"quality": 0.6}, "small": {"quality": 0.2}}


def plan(**keys: Any) -> AutoModelPlan:
    return compile_auto_model("auto", AutoModel.model_validate({"models": SIZES, **keys}))


def offer(model: str, price_nanos: int, ttft_s: float, **more: Any) -> Offer:
    values = {
        "endpoint": f"{model}/1", "quality": SIZES[model]["quality"], "input_tokens": 100, "wait_s": 0.0,
        "tpot_s": 0.01, "output_tokens": 100.0, **more,
    }  # fmt: skip
    return Offer(model=model, price_nanos=price_nanos, ttft_s=ttft_s, **values)  # pyright: ignore[reportArgumentType]


def offers(**more: Any) -> list[Offer]:
    return [
        offer("large", 1000, 0.5, **more.get("large", {})),
        offer("middle", 400, 0.3, **more.get("middle", {})),
        offer("small", 100, 0.1, **more.get("small", {})),
    ]


@pytest.mark.parametrize(
    ("keys", "more", "order"),
    [
        ({"prefer": "cheapest"}, {}, ["small", "middle", "large"]),
        ({"prefer": "best"}, {}, ["large", "middle", "small"]),
        ({"prefer": "best", "ttft_s": 0.4}, {}, ["middle", "small", "large"]),
        ({"prefer": "cheapest", "ttft_s": 0.4}, {"small": {"wait_s": 2.0}}, ["middle", "large", "small"]),
        ({"prefer": "cheapest", "ttft_s": 0.05}, {}, ["small", "middle", "large"]),
        ({"prefer": "fastest"}, {"small": {"wait_s": 2.0}}, ["middle", "large", "small"]),
        ({"weights": {"price": 0, "quality": 0}}, {}, ["small", "middle", "large"]),
        ({"weights": {"price": 0, "quality": 100}}, {}, ["large", "middle", "small"]),
        ({"weights": {"price": 100, "quality": 0}}, {}, ["small", "middle", "large"]),
        ({"prefer": "best"}, {"large": {"is_last_resort": True}}, ["middle", "small", "large"]),
    ],
)
def test_preference_and_bounds_decide_the_order(keys: dict[str, Any], more: dict[str, Any], order: list[str]) -> None:
    """Price, quality, latency and the wanted first token rank the models; ejected ones come last."""
    assert [each.model for each in rank(offers(**more), plan(**keys), is_offline=False)] == order


def test_costs_are_the_sum_of_their_parts() -> None:
    """Latency in seconds, price as a share of the dearest, quality as the distance from the best."""
    ranked = rank(offers(), plan(weights={"latency": 2, "price": 10, "quality": 100}), is_offline=False)
    middle = next(each for each in ranked if each.model == "middle")
    assert middle.parts_s == pytest.approx({"latency": 2 * (0.3 + 100 * 0.01), "price": 4.0, "quality": 30.0})
    assert middle.cost_s == pytest.approx(36.6)


def test_offline_requests_weigh_latency_by_their_own_weight() -> None:
    """A slow but cheap model is better for work in the gaps than for somebody who waits."""
    slow = {"small": {"wait_s": 30.0}}
    keys = {"weights": {"quality": 0, "price": 10}}
    assert rank(offers(**slow), plan(**keys), is_offline=False)[0].model == "middle"
    assert rank(offers(**slow), plan(**keys), is_offline=True)[0].model == "small"


def test_models_without_prices_have_no_price_part() -> None:
    """Where nothing has a price, nothing is divided by it."""
    free = [offer("large", 0, 0.5), offer("small", 0, 0.1)]
    assert {each.parts_s["price"] for each in rank(free, plan(), is_offline=False)} == {0.0}


def test_reason_says_whether_the_first_token_is_kept() -> None:
    """A person reads which rule decided."""
    kept = rank(offers(), plan(prefer="cheapest", ttft_s=0.4), is_offline=False)[0]
    assert reason_of(kept, plan(prefer="cheapest", ttft_s=0.4)).startswith("lowest price of those predicted to keep")
    assert "none keeps 0.01 s" in reason_of(kept, plan(prefer="cheapest", ttft_s=0.01))
    kept.is_trial = True
    assert "on trial" in reason_of(kept, plan(prefer="cheapest"))


def seen() -> Predicted:
    return Predicted(ttft_s=0.05, tpot_s=0.02, fixed_s=0.03)


def test_whole_answers_teach_how_long_they_take() -> None:
    """After answers of ten seconds for 100 tokens, as many are predicted to take that long; streams count first."""
    pace = ModelPace()
    for turn in range(10):
        pace.told(10.0, 100, float(turn))
    found = pace.correct(seen(), 10.0)
    assert found.ttft_s + found.tpot_s * 100 == pytest.approx(10.0, rel=0.05)
    pace.streamed(11.0)
    assert pace.correct(seen(), 12.0).tpot_s == 0.02
    assert pace.correct(seen(), 12.0 + 2 * STALE_S).tpot_s == 0.02


def test_one_request_finds_out_about_a_model_that_was_silent() -> None:
    """A model is tried when it never answered, and again when it was silent for long, one request at a time."""
    pace = ModelPace()
    assert pace.may_be_tried(0.0)
    pace.tried_mono_s = 0.0
    assert not pace.may_be_tried(1.0)
    pace.streamed(2.0)
    assert not pace.may_be_tried(2.0 + STALE_S)
    assert pace.may_be_tried(3.0 + STALE_S)


def test_prediction_grows_while_an_endpoint_stays_silent() -> None:
    """An endpoint that owes a first token for five seconds is predicted to need five seconds at least."""
    index = PrefixIndex()
    candidate = Candidate("p/1", index.new_shelf(capacity=1e6, max_blocks=100), PoolSpeed())
    idle = predict(candidate, input_tokens=100, held_tokens=0, now_mono_s=0.0)
    assert predict(candidate, input_tokens=10_000, held_tokens=0, now_mono_s=0.0).ttft_s > idle.ttft_s
    cached = predict(candidate, input_tokens=10_000, held_tokens=9_900, now_mono_s=0.0)
    assert cached.ttft_s < predict(candidate, input_tokens=10_000, held_tokens=0, now_mono_s=0.0).ttft_s
    candidate.claim(index, None, input_tokens=100, held_tokens=0, now_mono_s=0.0)
    assert predict(candidate, input_tokens=100, held_tokens=0, now_mono_s=5.0).ttft_s >= 5.0
