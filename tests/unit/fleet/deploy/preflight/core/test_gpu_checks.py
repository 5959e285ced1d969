"""What is said of a pool's GPUs: absent, busy, joined by PCIe, with a driver that is too old."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.declaration.model import Model, Pool
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.core.gpu_checks import check_gpus
from headrace.fleet.deploy.preflight.core.machine import EngineBuild, GpuFacts, Machine, ModelFacts, PoolPlan
from headrace.sizing.hf_config import read_hf_config

GIB = 2**30
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def plan(engine: str = "vllm", context_tokens: int = 8192, **options: Any) -> PoolPlan:
    model = Model(context_tokens=context_tokens)
    pool = Pool.model_validate({"model": "m", "engine": EngineKind(engine), **options})
    facts = ModelFacts(path="/m", is_here=True, architecture=read_hf_config(LLAMA_8B))
    return PoolPlan(name="p", pool=pool, model=model, repository="meta-llama/Llama-3.1-8B-Instruct", facts=facts)


def gpus(count: int, *, used_bytes: int = 0) -> tuple[GpuFacts, ...]:
    return tuple(
        GpuFacts(index=number, name="NVIDIA L40S", total_bytes=45 * GIB, used_bytes=used_bytes, capability=89)
        for number in range(count)
    )


def links(count: int, kind: str) -> Mapping[tuple[int, int], str]:
    return {(one, two): kind for one in range(count) for two in range(count) if one != two}


def found(plan: PoolPlan, machine: Machine) -> dict[str, Finding]:
    return {finding.code: finding for finding in check_gpus(plan, machine)}


def test_a_laptop_without_a_gpu_says_so_and_goes_on() -> None:
    """No GPU here is no fault of the declaration; what needs none is still checked."""
    said = found(plan(parallel={"tensor": 5}), Machine())
    assert (said["gpu"].level, said["heads"].level) == (Level.WARN, Level.FAIL)
    assert "memory" not in said


@pytest.mark.parametrize("machine", [Machine(has_gpu_tools=True), Machine(is_captured=True), Machine(gpus=gpus(1))])
def test_a_machine_that_should_have_gpus_fails(machine: Machine) -> None:
    """A driver that does not answer, a captured machine without GPUs, or one GPU of two."""
    assert found(plan(parallel={"tensor": 2}), machine)["gpu"].level is Level.FAIL


@pytest.mark.parametrize(
    ("built_for", "level"),
    [((12, 4), Level.OK), ((12, 8), Level.OK), ((12, 9), Level.WARN), ((13, 0), Level.FAIL), (None, Level.WARN)],
)
def test_a_driver_runs_builds_of_its_cuda_major_version(built_for: tuple[int, int] | None, level: Level) -> None:
    """Older and equal builds run, a newer minor version is a doubt, a newer major version does not run."""
    engines = {"vllm": EngineBuild(version="0.32.0", cuda=built_for)}
    machine = Machine(gpus=gpus(1), driver="570.1", driver_cuda=(12, 8), engines=engines)
    assert found(plan(), machine)["driver"].level is level


@pytest.mark.parametrize(
    ("tensor", "kind", "level"),
    [
        (2, "NV12", Level.OK),
        (8, "NV18", Level.OK),
        (2, "PHB", Level.WARN),
        (4, "SYS", Level.WARN),
        (8, "PIX", Level.FAIL),
    ],
)
def test_a_large_tensor_group_needs_nvlink(tensor: int, kind: str, level: Level) -> None:
    """Up to four GPUs over PCIe are slow, more are a fault."""
    machine = Machine(gpus=gpus(8), links=links(8, kind))
    assert found(plan(parallel={"tensor": tensor}), machine)["topology"].level is level


def test_one_pair_without_nvlink_counts() -> None:
    """Bridges join two GPUs each: a group of four then crosses PCIe."""
    pairs = {**links(4, "SYS"), (0, 1): "NV12", (1, 0): "NV12", (2, 3): "NV12", (3, 2): "NV12"}
    machine = Machine(gpus=gpus(4), links=pairs, numa={0: "0", 1: "0", 2: "1", 3: "1"})
    said = found(plan(parallel={"tensor": 4}), machine)
    assert (said["topology"].level, said["numa"].level) == (Level.WARN, Level.WARN)


def test_a_gpu_in_use_fails_where_the_engine_takes_more_than_is_free() -> None:
    """vLLM wants its share free at the start; the remedy is the share that is."""
    busy = Machine(gpus=gpus(1, used_bytes=20 * GIB))
    finding = found(plan(memory={"fraction": 0.9}), busy)["memory-free"]
    assert finding.level is Level.FAIL
    assert "pools.p.memory.fraction to 0.54" in finding.remedy
    assert found(plan(memory={"fraction": 0.5}), busy)["memory-free"].level is Level.WARN
    assert "memory-free" not in found(plan(), Machine(gpus=gpus(1)))


def test_the_remedy_for_a_long_context_is_one_that_holds() -> None:
    """The context that is proposed fits, a quarter more does not."""
    machine = Machine(gpus=gpus(1))
    finding = found(plan(context_tokens=1_000_000), machine)["kv-cache"]
    assert finding.level is Level.FAIL
    longest = int(finding.remedy.split("context_tokens: ")[1].split(";")[0])
    assert found(plan(context_tokens=longest), machine)["kv-cache"].level is Level.OK
    assert found(plan(context_tokens=longest * 5 // 4), machine)["kv-cache"].level is Level.FAIL


def test_a_declared_cache_size_is_taken() -> None:
    """memory.kv_bytes sizes the cache whatever is left."""
    said = found(plan(memory={"kv_bytes": 8192 * 131_072}), Machine(gpus=gpus(1)))
    assert "8,192 tokens" in said["kv-cache"].seen


def test_weights_quantized_while_loading_are_smaller() -> None:
    """quantization: fp8 halves the matrices of a 16-bit checkpoint."""
    machine = Machine(gpus=gpus(1))
    plain, halved = (found(plan(**options), machine)["memory"].seen for options in ({}, {"quantization": "fp8"}))
    assert plain.startswith("15.0 GiB weights")
    assert halved.startswith("8.5 GiB weights")


def test_a_fraction_in_another_engines_meaning_is_converted_as_for_the_start() -> None:
    """A share for weights and KV cache is a larger share of everything on vLLM."""
    memory = {"fraction": 0.7, "of": "static", "device_bytes": 45 * GIB, "working_bytes": 9 * GIB // 2}
    assert "fraction 0.8" in found(plan(memory=memory), Machine(gpus=gpus(1)))["memory"].seen
