"""From GPU, model and bounds to the engine model that is simulated: what `headrace sim engine` is told, resolved."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.catalog.gpus import find_gpu, gpu_names
from headrace.catalog.model_configs import find_model_config, model_config_names
from headrace.domain.operator_error import OperatorError
from headrace.engines.simulated.config import DialectKind
from headrace.simulation.layout import Layout, Placement
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.model import CacheKind, EngineModel, KvModel, SchedulingBounds, StepClock
from headrace.simulation.roofline import RooflineClock

if TYPE_CHECKING:
    from headrace.simulation.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What a simulated engine runs on. None: the engine's or the model's own default."""

    dialect: DialectKind
    gpu: str
    model: str
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    weights: str = "bf16"
    kv_dtype: str = "bf16"
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


DEFAULTS: Mapping[DialectKind, Defaults] = MappingProxyType(
    {
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
)


def model_of(hardware: Hardware) -> EngineModel:
    """The engine model of `hardware`.

    Raises: OperatorError for what is not in the catalogue or does not fit.
    """
    defaults = DEFAULTS[hardware.dialect]
    max_sequences = hardware.max_sequences or defaults.max_sequences
    kv, clock = (_fixed if hardware.step_s is not None else _placed)(hardware, defaults)
    context_tokens = _context_tokens(hardware, kv)
    try:
        return EngineModel(
            clock=clock,
            bounds=SchedulingBounds(
                max_sequences=max_sequences,
                max_batched_tokens=hardware.max_batched_tokens or max(defaults.max_batched_tokens, max_sequences),
                context_tokens=context_tokens,
                is_prefill_mixed=defaults.is_prefill_mixed,
                max_queued_requests=hardware.max_queued_requests,
                reserved_output_ratio=defaults.reserved_output_ratio,
            ),
            kv=kv,
        )
    except ValueError as error:
        raise OperatorError(str(error)) from error


def _fixed(hardware: Hardware, defaults: Defaults) -> tuple[KvModel, StepClock]:
    """No GPU is meant: every step takes the same time."""
    tokens = hardware.kv_tokens or FIXED_KV_TOKENS
    return _kv(defaults, tokens // defaults.block_tokens, 1024), LinearClock(fixed_s=hardware.step_s or 0.0)


FIXED_KV_TOKENS = 1_000_000
"""Size of the KV cache where neither a GPU nor a size is given: enough never to be the bound."""


def _placed(hardware: Hardware, defaults: Defaults) -> tuple[KvModel, StepClock]:
    """The model on its GPUs: what memory leaves for KV, and the time of a step."""
    placement = placement_of(hardware)
    clock: StepClock = RooflineClock(placement)
    if hardware.calibration is not None:
        clock = _calibration(hardware.calibration).clock()
    if hardware.kv_tokens is not None:
        blocks = hardware.kv_tokens // defaults.block_tokens
    else:
        blocks = _blocks_that_fit(hardware, placement, defaults)
    return _kv(defaults, blocks, placement.kv_bytes_per_token), clock


def placement_of(hardware: Hardware) -> Placement:
    """The catalogue's model on the catalogue's GPUs.

    Raises: OperatorError naming what there is.
    """
    gpu, config = find_gpu(hardware.gpu), find_model_config(hardware.model)
    if gpu is None:
        raise OperatorError(f"GPU {hardware.gpu!r} is not in the catalogue: {', '.join(gpu_names())}")
    if config is None:
        known = ", ".join(model_config_names())
        raise OperatorError(f"model {hardware.model!r} is not in the catalogue: {known}")
    layout = Layout(tensor=hardware.tensor_parallel, pipeline=hardware.pipeline_parallel)
    try:
        return Placement(gpu=gpu, config=config, layout=layout, weights=hardware.weights, kv=hardware.kv_dtype)
    except ValueError as error:
        raise OperatorError(str(error)) from error


def _blocks_that_fit(hardware: Hardware, placement: Placement, defaults: Defaults) -> int:
    """TensorRT-LLM's fraction is of what the weights leave, the others' of all memory."""
    fraction = hardware.memory_fraction
    is_of_free = hardware.dialect in (DialectKind.TENSORRT_LLM, DialectKind.TRITON)
    try:
        if is_of_free:
            return int(placement.kv_blocks(memory_ratio=1.0, block_tokens=defaults.block_tokens) * fraction)
        return placement.kv_blocks(memory_ratio=fraction, block_tokens=defaults.block_tokens)
    except ValueError as error:
        raise OperatorError(str(error), hint="Take more GPUs (--tp), or fewer bits (--weights fp8).") from error


def request_overhead_s(hardware: Hardware) -> float:
    """What a request costs outside the engine's steps: known only from a calibration.

    Raises: OperatorError for a file that cannot be used.
    """
    return 0.0 if hardware.calibration is None else _calibration(hardware.calibration).request_overhead_s


def _calibration(path: Path) -> "Calibration":
    from headrace.simulation.calibration import CalibrationError, parse_calibration  # slow to import, seldom used

    try:
        return parse_calibration(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else "is no text"
        raise OperatorError(f"the calibration file {path} cannot be read: {why}") from error
    except CalibrationError as error:
        raise OperatorError(f"the calibration file {path} cannot be used: {error}") from error


def _kv(defaults: Defaults, blocks: int, bytes_per_token: int) -> KvModel:
    return KvModel(
        total_blocks=max(1, blocks),
        block_tokens=defaults.block_tokens,
        kind=defaults.cache,
        bytes_per_token=bytes_per_token,
    )


def _context_tokens(hardware: Hardware, kv: KvModel) -> int:
    """As asked, else the model's own, as far as the KV cache holds it."""
    if hardware.context_tokens is not None:
        return hardware.context_tokens
    config = find_model_config(hardware.model)
    own = DEFAULT_CONTEXT_TOKENS if config is None else config.context_tokens
    return min(own, kv.total_blocks * kv.block_tokens)


DEFAULT_CONTEXT_TOKENS = 32_768
"""Context of a model that is not in the catalogue."""
