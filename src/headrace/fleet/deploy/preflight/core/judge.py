"""All checks of one pool in the order in which an operator would look. Pure."""

from collections.abc import Iterator

from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.preflight.core.finding import Finding, fail, ok
from headrace.fleet.deploy.preflight.core.gpu_checks import check_gpus
from headrace.fleet.deploy.preflight.core.host_checks import check_host
from headrace.fleet.deploy.preflight.core.machine import Machine, PoolPlan
from headrace.fleet.deploy.preflight.core.model_checks import check_model
from headrace.sizing.llamacpp import kv_cache_bytes
from headrace.sizing.memory_plan import GIB

GPU_ENGINES = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TENSORRT_LLM)


def judge_pool(plan: PoolPlan, machine: Machine) -> tuple[Finding, ...]:
    """Return every finding of one pool that headrace would run."""
    return tuple(_findings(plan, machine))


def _findings(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    is_on_gpu = plan.pool.engine in GPU_ENGINES and plan.pool.options.runtime.device == "gpu"
    if is_on_gpu:
        yield from check_gpus(plan, machine)
    else:
        yield ok("gpu", "computes on the CPU" if not machine.gpus else "needs none")
        if plan.pool.engine is EngineKind.LLAMACPP:
            yield from _host_memory(plan, machine)
    yield from check_model(plan)
    yield from check_host(plan, machine)


def _host_memory(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    """llama.cpp's weights and its KV cache, of all replicas, in the host's memory."""
    from headrace.declaration.engine_options import EMBEDDED_BATCHED_TOKENS, EMBEDDED_SEQUENCES

    architecture = plan.facts.architecture
    if architecture is None or machine.memory_bytes is None or machine.gpus:
        return
    batching = plan.pool.options.batching
    cache = kv_cache_bytes(
        architecture,
        context_tokens=plan.model.context_tokens,
        sequences=batching.max_sequences or EMBEDDED_SEQUENCES,
        step_tokens=batching.batched_tokens or EMBEDDED_BATCHED_TOKENS,
        kv_dtype=plan.pool.options.memory.kv_dtype,
    )
    weights = architecture.weight_bytes or 0
    wanted = weights + plan.pool.replica_count * cache  # replicas share the mapped file
    seen = (
        f"{weights / GIB:.2f} GiB weights and {cache / GIB:.2f} GiB KV cache for each of {plan.pool.replica_count} "
        f"replica(s), {machine.memory_bytes / GIB:.1f} GiB of memory available"
    )
    if wanted > machine.memory_bytes:
        yield fail(
            "memory",
            seen,
            needed=f"{wanted / GIB:.1f} GiB",
            remedy=f"Lower models.{plan.pool.model}.context_tokens, pools.{plan.name}.batching.max_sequences or "
            "replicas.",
        )
    else:
        yield ok("memory", seen)
