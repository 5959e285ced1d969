"""What a replica is asked before it counts as ready."""

from dataclasses import replace

import httpx
import pytest
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.declaration.model import Declaration
from headrace.engines.registry import driver_for
from headrace.engines.simulated.config import DialectKind, Role
from headrace.fleet.deploy.inquiry import warm_engine
from headrace.fleet.deploy.replica_plan import ReplicaPlan, bounds_of, shape_of


def plan_of(engine: DialectKind, role: Role) -> ReplicaPlan:
    pool: dict[str, object] = {"model": "m", "engine": engine.value, "served_model": MODEL}
    if role is not Role.BOTH:
        pool["disaggregation"] = {"role": role.value}
    declaration = Declaration.model_validate({"models": {"m": {"source": "file:/m"}}, "pools": {"p": pool}})
    section = declaration.pools["p"]
    return ReplicaPlan(pool="p", number=0, shape=shape_of(declaration, "p", 1), bounds=bounds_of(section))


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("engine", [DialectKind.VLLM, DialectKind.SGLANG])
async def test_an_engine_that_works_is_warm(engine: DialectKind, role: Role):
    """Prefill and decode engines too, even SGLang's, which answer nothing alone."""
    plan = plan_of(engine, role)
    async with serving(simulated(engine, role=role)) as (service, _), httpx.AsyncClient() as client:
        driver = driver_for(plan.shape.engine)
        assert await warm_engine(client, f"http://127.0.0.1:{service.port}", driver, plan) is None


async def test_an_engine_that_refuses_says_why():
    """The first request is a real one: a model that the engine does not have is noticed before callers come."""
    plan = plan_of(DialectKind.VLLM, Role.BOTH)
    other = replace(plan, shape=replace(plan.shape, served_model="another"))
    async with serving(simulated(DialectKind.VLLM)) as (service, _), httpx.AsyncClient() as client:
        failure = await warm_engine(client, f"http://127.0.0.1:{service.port}", driver_for(plan.shape.engine), other)
    assert failure is not None
    assert failure.startswith("the first request was answered 404")
