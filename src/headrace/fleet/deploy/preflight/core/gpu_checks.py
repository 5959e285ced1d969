"""GPUs of a pool: present, driver, kernels for the weights, links between them, memory, context."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from headrace.catalog.compatibility.judge import judge
from headrace.catalog.compatibility.terms import Answer, Combination, KvDtype, Precision
from headrace.domain.endpoint import EngineKind
from headrace.engines.memory_fraction import CannotConvertError, Meaning, convert_fraction
from headrace.fleet.deploy.preflight.core.finding import Finding, fail, ok, warn
from headrace.fleet.deploy.preflight.core.machine import GpuFacts, Machine, PoolPlan
from headrace.sizing.architecture import Architecture
from headrace.sizing.memory_plan import (
    GIB,
    MemoryPlan,
    Workload,
    longest_context,
    needed_fraction,
    needed_tensor,
    plan_memory,
    visible_bytes,
)
from headrace.sizing.quantization import BITSANDBYTES_BYTES

KV_DTYPES = {"fp8_e4m3": KvDtype.FP8, "fp8_e5m2": KvDtype.FP8, "nvfp4": KvDtype.NVFP4, "q8_0": KvDtype.INT8}
MEANINGS: dict[EngineKind, Meaning] = {
    EngineKind.VLLM: "total",
    EngineKind.SGLANG: "static",
    EngineKind.TENSORRT_LLM: "free",
}
"""What each engine's memory fraction is a share of."""
LOADED_AS = {"fp8": ("fp8", 1.0), "bitsandbytes": ("bitsandbytes", BITSANDBYTES_BYTES)}
"""Values of `quantization` that make plain weights smaller while they load -> format and bytes a weight."""
MOST_ON_PCIE = 4
"""A tensor group beyond this without NVLink is a fault, not a doubt: every layer's all-reduce crosses the host, and
vLLM switches its own all-reduce off. Source: vllm-project/vllm#56128 and its custom_all_reduce.py."""
BUSY_RATIO = 0.02
"""Memory in use beyond this share of a GPU is another process."""


def check_gpus(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    """Yield the findings of a pool that computes on GPUs."""
    gpus = machine.gpus[: plan.devices]
    if not gpus and not machine.has_gpu_tools and not machine.is_captured:
        yield warn(
            "gpu",
            "no GPU on this machine: what needs one is not checked",
            needed=f"{plan.devices}, where pools.{plan.name} is to run",
            remedy="Check the machine that has them: headrace check --from-capture DIR (docs/preflight.md).",
        )
        if plan.facts.architecture is not None:
            yield from _heads(plan)
        return
    if len(gpus) < plan.devices:
        yield fail(
            "gpu",
            f"{len(machine.gpus)} GPUs" if machine.gpus else "nvidia-smi lists no GPU",
            needed=f"{plan.devices} (tensor x pipeline x data of pools.{plan.name}.parallel)",
            remedy=f"Run it on a machine with {plan.devices} GPUs, lower pools.{plan.name}.parallel, or set "
            f"pools.{plan.name}.runtime.device: cpu.",
        )
        return
    yield ok("gpu", f"{len(machine.gpus)} x {gpus[0].name}, {gpus[0].total_bytes / GIB:.1f} GiB each")
    yield from _driver(plan, machine)
    if plan.facts.architecture is not None:
        yield from _kernels(plan, gpus[0])
        yield from _heads(plan)
    if plan.tensor > 1:
        yield from _links(plan, machine)
    yield from _memory(plan, gpus)


def _driver(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    build = machine.engines.get(plan.pool.engine.value)
    if machine.driver_cuda is None or build is None or build.cuda is None:
        lacking = "the driver's CUDA version" if machine.driver_cuda is None else f"{plan.pool.engine.value}'s build"
        yield warn("driver", f"driver {machine.driver or 'not known'}: {lacking} could not be seen")
        return
    said = f"driver {machine.driver} runs CUDA up to {_version(machine.driver_cuda)}"
    wanted = f"{plan.pool.engine.value} {build.version} is built for CUDA {_version(build.cuda)}"
    if machine.driver_cuda[0] < build.cuda[0]:
        yield fail(
            "driver",
            said,
            needed=wanted,
            remedy=f"Install a driver for CUDA {build.cuda[0]}, or a build of {plan.pool.engine.value} for CUDA "
            f"{machine.driver_cuda[0]}.",
        )
    elif machine.driver_cuda < build.cuda:
        yield warn(
            "driver", said, needed=wanted, remedy="Minor versions mix, but kernels compiled at run time may not."
        )
    else:
        yield ok("driver", f"{said}; {wanted}")


def _version(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _kernels(plan: PoolPlan, gpu: GpuFacts) -> Iterator[Finding]:
    """Whether the engine has kernels for these weights on this GPU, and whether a built engine is for it."""
    architecture = loaded_architecture(plan)
    assert architecture is not None
    try:
        precision = Precision(architecture.weights.name)
    except ValueError:
        yield warn("compute-capability", f"weights in {architecture.weights.name}: not in the compatibility matrix")
        return
    if gpu.capability is None:
        yield warn("compute-capability", f"{gpu.name}: its compute capability could not be seen")
        return
    verdict = judge(
        Combination(
            model=plan.repository,
            engine=plan.pool.engine,
            gpu=f"sm{gpu.capability}",
            precision=precision,
            kv_dtype=KV_DTYPES.get(plan.pool.options.memory.kv_dtype, KvDtype.AUTO),
            engine_built_on=plan.facts.engine_built_on,
        )
    )
    bad = [reason for reason in verdict.reasons if reason.answer is Answer.NO]
    doubts = [reason for reason in verdict.reasons if reason.answer is Answer.CONDITIONAL and reason.about != "model"]
    seen = f"{precision.value} on {gpu.name} (compute capability {gpu.capability / 10:.1f})"
    if bad:
        instead = "; ".join(f"{other.changes} ({other.answer.value})" for other in verdict.instead[:4])
        is_file = any(reason.about == "engine-file" for reason in bad)
        yield fail(
            "engine-file" if is_file else "compute-capability",
            seen if not is_file else f"a TensorRT engine built on {plan.facts.engine_built_on}, and {gpu.name} here",
            needed="; ".join(reason.text for reason in bad),
            remedy=f"Instead: {instead}." if instead else "Use another checkpoint or GPU (docs/compatibility.md).",
        )
    elif doubts:
        yield warn("compute-capability", seen, needed="; ".join(reason.text for reason in doubts[:3]))
    else:
        yield ok("compute-capability", seen)


def _heads(plan: PoolPlan) -> Iterator[Finding]:
    architecture, tensor = plan.facts.architecture, plan.tensor
    assert architecture is not None
    kv_heads = architecture.kv_heads
    is_even = architecture.heads % tensor == 0 and (kv_heads % tensor == 0 or tensor % kv_heads == 0)
    seen = f"{architecture.heads} attention heads and {kv_heads} KV heads over tensor: {tensor}"
    if is_even:
        yield ok("heads", seen)
        return
    fitting = [
        str(count)
        for count in range(1, 17)
        if architecture.heads % count == 0 and (kv_heads % count == 0 or count % kv_heads == 0)
    ]
    yield fail(
        "heads",
        seen,
        needed="a tensor group that divides both",
        remedy=f"Set pools.{plan.name}.parallel.tensor to {', '.join(fitting)}; use pipeline or data for the rest.",
    )


def _links(plan: PoolPlan, machine: Machine) -> Iterator[Finding]:
    group = [gpu.index for gpu in machine.gpus[: plan.tensor]]
    pairs = {(one, two): machine.links.get((one, two)) for one, two in combinations(group, 2)}
    if any(link is None for link in pairs.values()):
        yield warn("topology", "how the GPUs are joined could not be seen (nvidia-smi topo -m)")
        return
    kinds = sorted({str(link) for link in pairs.values() if not str(link).startswith("NV")})
    if not kinds:
        yield ok("topology", f"NVLink between all {plan.tensor} GPUs of a tensor group")
    elif plan.tensor > MOST_ON_PCIE:
        half = plan.tensor // 2
        yield fail(
            "topology",
            f"tensor: {plan.tensor} over PCIe ({', '.join(kinds)})",
            needed=f"NVLink for a tensor group of more than {MOST_ON_PCIE}",
            remedy=f"Set pools.{plan.name}.parallel: {{tensor: {half}, pipeline: {plan.tensor // half}}}, or smaller.",
        )
    else:
        yield warn(
            "topology",
            f"tensor: {plan.tensor} over PCIe ({', '.join(kinds)})",
            needed="NVLink for full speed",
            remedy=f"Compare pools.{plan.name}.parallel.pipeline: {plan.tensor} with tensor: {plan.tensor}.",
        )
    nodes = sorted({machine.numa[index] for index in group if index in machine.numa})
    if len(nodes) > 1 and kinds:
        yield warn("numa", f"GPUs on NUMA nodes {', '.join(nodes)}", needed="one node for a tensor group over PCIe")
    elif nodes:
        yield ok("numa", f"NUMA node {', '.join(nodes)}")


def workload_of(plan: PoolPlan, gpu: GpuFacts) -> Workload:
    """Return what the pool asks of each GPU."""
    options, memory = plan.pool.options, plan.pool.options.memory
    weight_bytes = plan.model.weight_bytes or plan.facts.weight_bytes or plan.facts.total_bytes
    return Workload(
        engine=plan.pool.engine.value,
        context_tokens=plan.model.context_tokens,
        tensor=options.parallel.tensor,
        pipeline=options.parallel.pipeline,
        expert=options.parallel.expert,
        kv_dtype=memory.kv_dtype,
        fraction=_fraction(plan, weight_bytes),
        kv_bytes=memory.kv_bytes,
        sequences=options.batching.max_sequences,
        step_tokens=options.batching.batched_tokens,
        weight_bytes=None if _is_quantized_while_loading(plan) else weight_bytes,
        working_bytes=memory.working_bytes,
        is_a100="A100" in gpu.name.upper(),
    )


def _fraction(plan: PoolPlan, weight_bytes: int | None) -> float | None:
    """The declared fraction as the engine gets it; None where none is declared, or facts for the conversion lack."""
    parallel = plan.pool.options.parallel
    try:
        converted = convert_fraction(
            plan.pool.options.memory,
            MEANINGS[plan.pool.engine],
            weight_bytes=weight_bytes,
            devices=parallel.tensor * parallel.pipeline,
        )
    except CannotConvertError:
        return None
    return None if converted is None else converted.fraction


def _is_quantized_while_loading(plan: PoolPlan) -> bool:
    architecture = plan.facts.architecture
    is_plain = architecture is not None and architecture.weights.matrix_bytes >= 2
    return is_plain and plan.pool.options.quantization in LOADED_AS


def loaded_architecture(plan: PoolPlan) -> Architecture | None:
    """Return the model as it lies in device memory: `quantization` may make plain weights smaller while they load."""
    architecture = plan.facts.architecture
    if architecture is None or not _is_quantized_while_loading(plan):
        return architecture
    name, size = LOADED_AS[str(plan.pool.options.quantization)]
    return replace(architecture, weights=replace(architecture.weights, name=name, matrix_bytes=size))


def _memory(plan: PoolPlan, gpus: tuple[GpuFacts, ...]) -> Iterator[Finding]:
    architecture = loaded_architecture(plan)
    if architecture is None:
        yield warn("memory", f"not computed: {plan.facts.unread or 'the model is not here yet'}")
        return
    gpu = min(gpus, key=lambda one: one.total_bytes)
    found = plan_memory(architecture, visible_bytes(gpu.total_bytes), workload_of(plan, gpu))
    parts = (
        f"{found.weight_bytes / GIB:.1f} GiB weights and {found.work_bytes / GIB:.1f} GiB work on each "
        f"{found.device_bytes / GIB:.1f} GiB GPU, fraction {found.fraction:g}"
    )
    yield from _busy(plan, gpus, found)
    if not found.has_room_for_weights:
        yield fail("memory", parts, needed="room for the weights", remedy=_remedy(plan, found, is_context=False))
        return
    yield ok("memory", f"{parts}; {found.kv_bytes / GIB:.1f} GiB left for the KV cache")
    seen = f"a KV cache of {found.kv_tokens:,} tokens"
    if found.is_fitting:
        yield ok("kv-cache", f"{seen}: {found.concurrency:.1f} sequences of {plan.model.context_tokens:,} at once")
        return
    yield fail(
        "kv-cache",
        seen,
        needed=f"one sequence of models.{plan.pool.model}.context_tokens: {plan.model.context_tokens}",
        remedy=_remedy(plan, found, is_context=True),
    )


def _busy(plan: PoolPlan, gpus: tuple[GpuFacts, ...], found: MemoryPlan) -> Iterator[Finding]:
    used = max(gpus, key=lambda one: one.used_bytes)
    if used.used_bytes < BUSY_RATIO * used.total_bytes:
        return
    seen = f"GPU {used.index} has {used.used_bytes / GIB:.1f} GiB in use already"
    takes = found.device_bytes * found.fraction if plan.pool.engine.value == "vllm" else 0
    if takes > used.total_bytes - used.used_bytes:
        share = int((used.total_bytes - used.used_bytes) / used.total_bytes * 100 - 1) / 100
        yield fail(
            "memory-free",
            seen,
            needed=f"{takes / GIB:.1f} GiB free, as vLLM looks before it starts",
            remedy=f"End what uses it (nvidia-smi), or set pools.{plan.name}.memory.fraction to {share}.",
        )
    else:
        yield warn("memory-free", seen, needed="a GPU of its own: the figures below assume one")


def _remedy(plan: PoolPlan, found: MemoryPlan, *, is_context: bool) -> str:
    """Each change that would do alone."""
    architecture = loaded_architecture(plan)
    assert architecture is not None
    ways: list[str] = []
    if is_context and (longest := longest_context(architecture, found)):
        ways.append(f"models.{plan.pool.model}.context_tokens: {longest}")
    if (fraction := needed_fraction(architecture, found)) is not None and found.workload.kv_bytes is None:
        ways.append(f"pools.{plan.name}.memory.fraction: {fraction}")
    if (tensor := needed_tensor(architecture, found)) is not None:
        ways.append(f"pools.{plan.name}.parallel.tensor: {tensor}")
    if is_context and found.workload.kv_dtype == "auto" and found.concurrency >= 0.5:
        ways.append(f"pools.{plan.name}.memory.kv_dtype: fp8_e4m3")
    if not ways:
        return "Take a quantized checkpoint, a smaller model or more GPUs."
    return f"One of: {'; '.join(ways)}."
