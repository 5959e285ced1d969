"""Organisations, tenants, limits and prices as the gateway gets them."""

import pytest
from pydantic import ValidationError

from headrace.declaration.model import Declaration
from headrace.declaration.tenancy_plan import compile_tenancy_plan
from headrace.declaration.tenant_sections import Degrade, Limits, TenantSection
from headrace.domain.quota import RequestCaps, Unit
from headrace.domain.request import RequestClass
from headrace.domain.tenant import DegradeKind

BASE = {"models": {"m": {}}, "pools": {"p": {"model": "m", "engine": "vllm", "endpoints": ["http://h"]}}}
EVERY_LIMIT = {
    "requests_per_min": 1,
    "input_tokens_per_min": 2,
    "output_tokens_per_min": 3,
    "gpu_seconds_per_min": 0.5,
    "concurrent_requests": 4,
    "concurrent_interactive": 5,
    "concurrent_streaming": 6,
    "concurrent_offline": 7,
}


def test_every_limit_and_budget_has_its_unit() -> None:
    """In the quota's own measures: microseconds of GPU time, billionths of the currency."""
    section = {
        "limits": {**EVERY_LIMIT, "per_request": {"tools": 1, "images": 0}},
        "budget": {"per_day": 0.25, "per_month": 5},
    }
    plan = compile_tenancy_plan(Declaration.model_validate({**BASE, "tenants": {"t": section}, "quota": section}))
    expected = {
        Unit.REQUESTS_PER_MIN: 1,
        Unit.INPUT_TOKENS_PER_MIN: 2,
        Unit.OUTPUT_TOKENS_PER_MIN: 3,
        Unit.GPU_SECONDS_PER_MIN: 500_000,
        Unit.CONCURRENT_REQUESTS: 4,
        Unit.CONCURRENT_INTERACTIVE: 5,
        Unit.CONCURRENT_STREAMING: 6,
        Unit.CONCURRENT_OFFLINE: 7,
        Unit.BUDGET_PER_DAY: 250_000_000,
        Unit.BUDGET_PER_MONTH: 5_000_000_000,
    }
    assert plan.limits.amounts == plan.tenants[0].allowance.limits.amounts == expected
    assert set(expected) == set(Unit)
    assert plan.limits.caps == RequestCaps(tools=1, images=0)
    assert set(EVERY_LIMIT) == set(Limits.model_fields) - {"per_request"}


def test_prices_are_exact_and_cached_input_is_input_unless_it_has_a_price() -> None:
    """Billionths of the currency for a million tokens; no prices, no version."""
    prices = {"version": "v", "currency": "EUR", "models": {"m": {"input_per_million": 0.0375, "gpu_hour": 2.5}}}
    plan = compile_tenancy_plan(Declaration.model_validate({**BASE, "prices": prices}))
    (price,) = plan.prices
    assert (plan.price_version, plan.currency) == ("v", "EUR")
    assert price.input_nanos_per_million == price.cached_input_nanos_per_million == 37_500_000
    assert (price.output_nanos_per_million, price.gpu_hour_nanos) == (0, 2_500_000_000)
    assert compile_tenancy_plan(Declaration.model_validate(BASE)).price_version is None


def test_a_ladder_keeps_its_order() -> None:
    """What is done with requests that find their pool full."""
    steps = [
        {"step": "queue", "from_wait_s": 1},
        {"step": "shorten", "output_tokens": 100, "models": ["m"]},
        {"step": "cheaper_model", "model": "m"},
        {"step": "refuse", "from_wait_s": 30},
    ]
    plan = compile_tenancy_plan(Declaration.model_validate({**BASE, "tenants": {"t": {"degrade": steps}}}))
    ladder = plan.tenants[0].degrade
    assert [step.kind for step in ladder] == list(DegradeKind)
    assert (ladder[1].output_tokens, ladder[1].models, ladder[2].models) == (100, frozenset({"m"}), None)


@pytest.mark.parametrize(
    "step",
    [
        {"step": "shorten"},
        {"step": "queue", "output_tokens": 5},
        {"step": "cheaper_model"},
        {"step": "refuse", "model": "m"},
    ],
)
def test_a_step_has_what_it_needs_and_nothing_else(step: dict[str, object]) -> None:
    """A rung that means nothing is refused when it is written."""
    with pytest.raises(ValidationError, match="belongs to step"):
        Degrade.model_validate(step)


def test_a_default_class_is_one_that_may_be_sent() -> None:
    """Otherwise every request without a header would be refused."""
    with pytest.raises(ValidationError, match="default_class standard is not among its classes"):
        TenantSection.model_validate({"classes": ["offline"]})
    assert TenantSection(classes=(RequestClass.OFFLINE,), default_class=RequestClass.OFFLINE).weight == 1.0
