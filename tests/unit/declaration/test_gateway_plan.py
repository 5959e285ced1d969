"""What a gateway worker is told of the declaration."""

import msgspec

from headrace.declaration.builtin import builtin_declaration
from headrace.declaration.gateway_plan import EndpointAddress, GatewayPlan, compile_gateway_plan
from headrace.declaration.limits import GatewayLimits
from headrace.declaration.model import Declaration
from headrace.domain.quota import Unit

REMOTE = Declaration.model_validate(
    {
        "models": {"m": {}},
        "pools": {
            "p": {
                "model": "m",
                "engine": "vllm",
                "endpoints": ["https://a"],
                "credentials": {"bearer": "s3cret"},
                "served_model": "M",
            }
        },
        "tenants": {"t": {"models": ["m"], "limits": {"requests_per_min": 5}}},
        "on_supervisor_loss": "keep",
    }
)


def test_the_plan_survives_its_way_to_the_worker() -> None:
    """It travels as JSON, and arrives as it was, secrets included."""
    address = EndpointAddress(endpoint="p/a:443", url="https://a")
    plan = compile_gateway_plan(REMOTE, {"p": (address,)}, revision=7)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=GatewayPlan) == plan
    (pool,) = plan.pools
    assert (pool.endpoints, pool.bearer, pool.served_model, pool.is_run_here) == ((address,), "s3cret", "M", False)
    (tenant,) = plan.tenancy.tenants
    assert (tenant.name, tenant.allowance.models) == ("t", frozenset({"m"}))
    assert tenant.allowance.limits.amounts == {Unit.REQUESTS_PER_MIN: 5}
    assert (plan.revision, plan.keeps_without_supervisor) == (7, True)


def test_pools_without_endpoints_yet_are_in_the_plan() -> None:
    """A replica that still loads has a pool already, so that its model is known and answered with 503."""
    plan = compile_gateway_plan(builtin_declaration(), {}, revision=1)
    assert [(pool.name, pool.endpoints, pool.is_run_here) for pool in plan.pools] == [("default", (), True)]


def test_every_declared_limit_reaches_the_worker() -> None:
    """No limit of headrace.yaml is forgotten on the way."""
    plan = compile_gateway_plan(builtin_declaration(), {}, revision=1)
    assert msgspec.to_builtins(plan.limits) == GatewayLimits().model_dump()
