"""How an engine divides a device between weights, work and KV cache, and what that leaves for sequences.

vLLM: a share of all memory, less weights, activations and runtime. SGLang: a static pool for weights and KV.
TensorRT-LLM: a share of what weights and work leave. Formulas: docs/preflight.md. llama.cpp is in `llamacpp.py`.
"""

import math
from dataclasses import dataclass, replace

from headrace.sizing.architecture import Architecture, LayerKind
from headrace.sizing.kv import sequence_bytes, token_bytes
from headrace.sizing.weights import device_weight_bytes

GIB = 2**30

DRIVER_BYTES = round(0.45 * GIB)
"""What `nvidia-smi` counts as total and CUDA does not see. Source: an H100 shows 81,559 MiB and vLLM 79.22 GiB
(vllm-project/vllm#10511); an RTX 4090 shows 24,564 MiB and vLLM 23.55 GiB (#11550)."""
SAMPLER_COPIES = 10
"""How many float32 values for each sequence and vocabulary entry the profiled sampler holds at its peak. Source: 1.26
GiB for 256 sequences of Llama 3's 128,256 entries, alike on one and two GPUs (vllm-project/vllm#10511)."""
RUNTIME_BYTES = round(0.25 * GIB)
"""Memory that vLLM does not get from PyTorch, on one or two GPUs: its own `non_torch_memory` is 0.16 to 0.25 GiB
(vllm-project/vllm#12126, #13061)."""
CONTEXT_BYTES = round(0.5 * GIB)
"""A CUDA context with its kernels, before any weight. Source: what sgl-project/sglang#11716 leaves of 139.8 GiB before
loading (137.3), less `COLLECTIVE_BYTES`; it also holds for one GPU in the logs that the tests predict."""
COLLECTIVE_BYTES = round(1.5 * GIB)
"""NCCL and custom all-reduce of more than two GPUs. Source: `Init torch distributed ends. mem usage=2.01 GB` with 8
H200, context included (sgl-project/sglang#11716)."""
GRAPH_BYTES = round(0.5 * GIB)
"""CUDA graphs that newer vLLM takes off beforehand; it logs 0.1 to 0.6 GiB (`CUDA graph pool memory`)."""
VLLM_FRACTION = 0.92
"""Source: vLLM 0.32, `vllm serve --help`; older versions took 0.9."""
TRTLLM_FRACTION = 0.9
"""`free_gpu_memory_fraction`. Source: TensorRT-LLM's KvCacheConfig."""
VLLM_STEPS = ((160 * GIB, 16384, 1024), (70 * GIB, 8192, 1024), (0, 2048, 256))
"""Least device memory -> tokens of a step and sequences of `vllm serve`. An A100 takes the last row whatever its size.
Source: vLLM 0.32, `engine/arg_utils.py`."""
SGLANG_STEPS = (
    (160 * GIB, 16384, 512, 512),
    (60 * GIB, 8192, 256, 512),
    (35 * GIB, 4096, 32, 160),
    (20 * GIB, 4096, 48, 160),
    (0, 2048, 8, 8),
)
"""Least device memory -> tokens of a step, and largest graph with fewer than 4 GPUs and with more. Source: SGLang
0.5.23, `arg_groups/memory_hook.py`."""
SGLANG_FLOOR_MIB = 10 * 1024
"""Least reserve on GPUs of 60 GiB and more. Source: the same."""
BLOCK_TOKENS = {"vllm": 16, "sglang": 1, "tensorrt-llm": 32}
"""Tokens of one KV block. Source: each engine's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is asked of one replica."""

    engine: str
    """`vllm`, `sglang` or `tensorrt-llm`."""
    context_tokens: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    """Devices over which routed experts are spread."""
    kv_dtype: str = "auto"
    fraction: float | None = None
    """In the engine's own meaning; None: its default."""
    kv_bytes: int | None = None
    """A declared size of the cache on one device, instead of a fraction."""
    sequences: int | None = None
    step_tokens: int | None = None
    weight_bytes: int | None = None
    """Size of the whole model's files, where known."""
    working_bytes: int | None = None
    """Measured activations and graphs; None: estimated."""
    is_a100: bool = False
    """vLLM takes smaller steps on an A100 than on other GPUs of its size."""
    counts_graphs: bool = True
    """Newer vLLM takes its CUDA graphs off before it sizes the cache; older ones captured them afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """One device's memory. Units: bytes and tokens."""

    workload: Workload
    device_bytes: int
    """As CUDA sees it."""
    fraction: float
    weight_bytes: int
    work_bytes: int
    """Activations, sampling, graphs, CUDA context and collectives, as far as the engine takes them off."""
    kv_bytes: int
    """Left for the cache; negative where even the weights do not fit."""
    token_bytes: float
    sequence_bytes: float
    """Of one sequence of the declared context."""
    block_tokens: int
    has_state: bool
    """Some layers keep a state for each sequence beside what they keep for each token."""

    @property
    def kv_tokens(self) -> int:
        """Tokens that the cache holds, in whole blocks: of sequences of the declared context, where a sequence costs
        more than its tokens (as vLLM counts them since 0.21); windows count as if they kept all."""
        if self.kv_bytes <= 0:
            return 0
        per_token = self.token_bytes
        if self.has_state or not per_token:
            per_token = self.sequence_bytes / self.workload.context_tokens
        return int(self.kv_bytes / per_token / self.block_tokens) * self.block_tokens

    @property
    def concurrency(self) -> float:
        """Sequences of the declared context that fit at once."""
        return max(0.0, self.kv_bytes / self.sequence_bytes)

    @property
    def has_room_for_weights(self) -> bool:
        return self.kv_bytes > 0

    @property
    def is_fitting(self) -> bool:
        """One sequence of the declared context fits."""
        return self.concurrency >= 1


def plan_memory(architecture: Architecture, device_bytes: int, workload: Workload) -> MemoryPlan:
    """Divide one device. `device_bytes`: what CUDA sees (`visible_bytes` of what `nvidia-smi` says)."""
    weights = device_weight_bytes(
        architecture,
        tensor=workload.tensor,
        pipeline=workload.pipeline,
        expert=workload.expert,
        measured_bytes=workload.weight_bytes,
    )
    fraction, work, room = _divide(architecture, device_bytes, workload, weights)
    block = BLOCK_TOKENS[workload.engine]
    return MemoryPlan(
        workload=workload,
        device_bytes=device_bytes,
        fraction=fraction,
        weight_bytes=weights,
        work_bytes=work,
        kv_bytes=workload.kv_bytes if workload.kv_bytes is not None and room > 0 else int(room),
        token_bytes=token_bytes(
            architecture, kv_dtype=workload.kv_dtype, tensor=workload.tensor, pipeline=workload.pipeline
        ),
        sequence_bytes=sequence_bytes(
            architecture,
            workload.context_tokens,
            kv_dtype=workload.kv_dtype,
            tensor=workload.tensor,
            pipeline=workload.pipeline,
            block_tokens=block,
            step_tokens=_step(workload, device_bytes)[0],
        ),
        block_tokens=block,
        has_state=architecture.cache_layers(LayerKind.RECURRENT) > 0,
    )


def visible_bytes(total_bytes: int) -> int:
    """Return what CUDA sees of what `nvidia-smi` says."""
    return total_bytes - DRIVER_BYTES


def work_bytes(architecture: Architecture, device_bytes: int, workload: Workload) -> int:
    """Return the peak of one profiled step: the widest block, or the sampler, whichever is larger."""
    if workload.working_bytes is not None:
        return workload.working_bytes
    tokens, sequences = _step(workload, device_bytes)
    widest = 3 * architecture.intermediate / workload.tensor + 3 * architecture.hidden
    forward = tokens * widest * 2
    sampler = sequences * architecture.vocabulary * 4 * SAMPLER_COPIES
    return round(max(forward, sampler))


def sglang_fraction(device_bytes: int, workload: Workload) -> float:
    """Return SGLang's own choice: all but a reserve that grows with the step, the graphs and the tensor group.

    Source: SGLang 0.5.23, `arg_groups/memory_hook.py`.
    """
    _, step, small, large = next(row for row in SGLANG_STEPS if device_bytes >= row[0])
    reserve_mib = 512 + max(workload.step_tokens or step, 2048) * 1.5
    reserve_mib += workload.tensor * workload.pipeline / 8 * 1024 + 2 * (small if workload.tensor < 4 else large)
    if device_bytes > 60 * GIB:
        reserve_mib = max(reserve_mib, SGLANG_FLOOR_MIB)
    return round(1 - reserve_mib * 2**20 / device_bytes, 3)


def _step(workload: Workload, device_bytes: int) -> tuple[int, int]:
    """Tokens of a step, and sequences at once."""
    row = VLLM_STEPS[-1] if workload.is_a100 else next(row for row in VLLM_STEPS if device_bytes >= row[0])
    return workload.step_tokens or row[1], workload.sequences or row[2]


def _divide(
    architecture: Architecture, device_bytes: int, workload: Workload, weights: int
) -> tuple[float, int, float]:
    """Return the fraction, what the engine takes off beside weights, and what is left for the cache."""
    collective = COLLECTIVE_BYTES if workload.tensor * workload.pipeline > 2 else 0
    if workload.engine == "sglang":
        before = device_bytes - CONTEXT_BYTES - collective
        fraction = workload.fraction or sglang_fraction(device_bytes, workload)
        return fraction, CONTEXT_BYTES + collective, before * fraction - weights
    if workload.engine == "tensorrt-llm":
        fraction = workload.fraction or TRTLLM_FRACTION
        work = CONTEXT_BYTES + collective + work_bytes(architecture, device_bytes, workload)
        free = device_bytes - weights - work
        return fraction, work, free * fraction if free > 0 else free
    fraction = workload.fraction or VLLM_FRACTION
    work = RUNTIME_BYTES + collective + work_bytes(architecture, device_bytes, workload)
    work += GRAPH_BYTES if workload.counts_graphs else 0
    return fraction, work, device_bytes * fraction - weights - work


def longest_context(architecture: Architecture, plan: MemoryPlan) -> int:
    """Return the longest sequence that fits, in whole blocks; 0 where nothing does."""
    low, high = 0, plan.workload.context_tokens
    while high - low > plan.block_tokens:
        middle = (low + high) // 2
        tried = plan_memory(architecture, plan.device_bytes, replace(plan.workload, context_tokens=max(1, middle)))
        low, high = (middle, high) if tried.is_fitting else (low, middle)
    return low // plan.block_tokens * plan.block_tokens


def needed_fraction(architecture: Architecture, plan: MemoryPlan) -> float | None:
    """Return the least fraction, to two digits, with which one sequence fits; None where none up to 0.95 does."""
    for hundredth in range(math.ceil(plan.fraction * 100), 96):
        tried = plan_memory(architecture, plan.device_bytes, replace(plan.workload, fraction=hundredth / 100))
        if tried.is_fitting:
            return hundredth / 100
    return None


def needed_tensor(architecture: Architecture, plan: MemoryPlan, *, most: int = 16) -> int | None:
    """Return the smallest larger tensor group that divides the heads and with which one sequence fits."""
    for tensor in range(plan.workload.tensor + 1, most + 1):
        is_even = architecture.heads % tensor == 0 and (
            architecture.kv_heads % tensor == 0 or tensor % architecture.kv_heads == 0
        )
        if is_even and plan_memory(architecture, plan.device_bytes, replace(plan.workload, tensor=tensor)).is_fitting:
            return tensor
    return None
