"""All checks of one pool together."""

from typing import Any

from tests.unit.sizing.test_hf_config import SMALL

from headrace.declaration.model import Model, Pool
from headrace.fleet.deploy.preflight.core.finding import Level
from headrace.fleet.deploy.preflight.core.judge import judge_pool
from headrace.fleet.deploy.preflight.core.machine import Machine, ModelFacts, PoolPlan
from headrace.sizing.hf_config import read_hf_config

CELL_BYTES = 6 * 2 * 2 * 16 * 2
"""Layers, keys and values, KV heads, head size, bytes."""


def embedded(memory_bytes: int | None, **options: Any) -> dict[str, Level]:
    pool = Pool.model_validate({"model": "m", "engine": "llamacpp", **options})
    facts = ModelFacts(path="/m.gguf", is_here=True, architecture=read_hf_config(SMALL))
    plan = PoolPlan(name="p", pool=pool, model=Model(context_tokens=2048), repository="m", facts=facts)
    return {finding.code: finding.level for finding in judge_pool(plan, Machine(memory_bytes=memory_bytes))}


def test_the_embedded_engine_needs_no_gpu_but_memory() -> None:
    """Four sequences of 2,048 tokens for each replica must fit into what the host has left."""
    one_replica_bytes = 4 * 2048 * CELL_BYTES
    assert embedded(one_replica_bytes)["memory"] is Level.OK
    assert embedded(one_replica_bytes - 1)["memory"] is Level.FAIL
    assert embedded(one_replica_bytes, replicas=2)["memory"] is Level.FAIL
    assert embedded(2 * one_replica_bytes, replicas=2)["memory"] is Level.OK
    assert "memory" not in embedded(None)
    assert embedded(None)["gpu"] is Level.OK


def test_an_engine_on_the_cpu_is_not_asked_for_gpus() -> None:
    """runtime.device: cpu."""
    pool = Pool.model_validate({"model": "m", "engine": "vllm", "runtime": {"device": "cpu"}})
    plan = PoolPlan(name="p", pool=pool, model=Model(), repository="m", facts=ModelFacts(path="/m", is_here=False))
    codes = {finding.code: finding.level for finding in judge_pool(plan, Machine())}
    assert codes["gpu"] is Level.OK
    assert not {"memory", "driver", "kv-cache"} & set(codes)
