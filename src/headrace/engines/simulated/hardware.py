"""From GPU, model and bounds to the engine model that is simulated: what `headrace sim engine` is told, resolved."""

from dataclasses import dataclass
from pathlib import Path

from headrace.domain.operator_error import OperatorError
from headrace.engines.simulated.config import DialectKind
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.model import CacheKind, EngineModel, KvModel, SchedulingBounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a simulated engine runs on. None: the engine's or the model's own default."""

    dialect: DialectKind
    gpu: str
    model: str
    tensor_parallel: int = 1
    context_tokens: int | None = None
    max_sequences: int | None = None
    max_batched_tokens: int | None = None
    max_queued_requests: int | None = None
    memory_fraction: float = 0.9
    calibration: Path | None = None
    step_s: float | None = None
    """Every step takes so long: for tests and load, where no GPU is meant."""
    kv_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """One engine's defaults. Sources: their --help, as read for the versions that the drivers name."""

    max_sequences: int
    max_batched_tokens: int
    block_tokens: int
    cache: CacheKind
    is_prefill_mixed: bool = True
    reserved_output_ratio: float = 0.0


DEFAULTS = {
    DialectKind.VLLM: Defaults(
        max_sequences=1024, max_batched_tokens=8192, block_tokens=16, cache=CacheKind.BLOCK_HASH
    ),
    DialectKind.SGLANG: Defaults(
        max_sequences=2048, max_batched_tokens=16384, block_tokens=1, cache=CacheKind.RADIX, is_prefill_mixed=False
    ),
    DialectKind.TENSORRT_LLM: Defaults(
        max_sequences=2048,
        max_batched_tokens=8192,
        block_tokens=32,
        cache=CacheKind.BLOCK_HASH,
        reserved_output_ratio=1.0,
    ),
    DialectKind.TRITON: Defaults(
        max_sequences=2048,
        max_batched_tokens=8192,
        block_tokens=32,
        cache=CacheKind.BLOCK_HASH,
        reserved_output_ratio=1.0,
    ),
    DialectKind.LLAMACPP: Defaults(max_sequences=4, max_batched_tokens=2048, block_tokens=1, cache=CacheKind.SLOTS),
}


def model_of(hardware: Hardware) -> EngineModel:
    """The engine model of `hardware`.

    Raises: OperatorError for what is not in the catalogue or does not fit.
    """
    defaults = DEFAULTS[hardware.dialect]
    max_sequences = hardware.max_sequences or defaults.max_sequences
    batched = hardware.max_batched_tokens or max(defaults.max_batched_tokens, max_sequences)
    context_tokens = hardware.context_tokens or 32768
    block = defaults.block_tokens
    if hardware.step_s is None:
        raise OperatorError("timing by GPU is not part of this installation yet; give --step-ms")
    kv_tokens = hardware.kv_tokens or 1_000_000
    return EngineModel(
        clock=LinearClock(fixed_s=hardware.step_s),
        bounds=SchedulingBounds(
            max_sequences=max_sequences,
            max_batched_tokens=batched,
            context_tokens=context_tokens,
            is_prefill_mixed=defaults.is_prefill_mixed,
            max_queued_requests=hardware.max_queued_requests,
            reserved_output_ratio=defaults.reserved_output_ratio,
        ),
        kv=KvModel(
            total_blocks=max(1, kv_tokens // block), block_tokens=block, kind=defaults.cache, bytes_per_token=1024
        ),
    )
