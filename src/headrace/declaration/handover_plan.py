"""What a gateway worker needs of `pools.<name>.disaggregation` and `handover`: a part of the gateway plan."""

import msgspec

from headrace.declaration.engine_options import EMBEDDED_SEQUENCES
from headrace.declaration.model import Model, Pool
from headrace.domain.endpoint import EngineKind


class HandoverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's part in handing prompts over."""

    role: str
    """prefill, decode or both."""
    min_tokens: int = 512
    min_gain_s: float = 0.02
    timeout_s: float = 4.0
    warm_up: bool = True
    folder: str | None = None
    slots: int | None = None
    """Of one engine, where engines have slots."""
    bootstrap_port: int | None = None
    kv_bytes_per_token: int | None = None
    source: str | None = None
    """The model's, of which the catalogue may know the size of its KV."""
    kv_dtype: str = "auto"
    tensor: int = 1
    pipeline: int = 1


def compile_handover(pool: Pool, model: Model | None) -> HandoverPlan | None:
    """None where the pool's engines do both and nothing is handed over."""
    options, section = pool.options, pool.handover
    if options.disaggregation is None:
        return None
    slots = section.slots or options.batching.max_sequences or EMBEDDED_SEQUENCES
    return HandoverPlan(
        role=options.disaggregation.role,
        min_tokens=section.min_tokens,
        min_gain_s=section.min_gain_s,
        timeout_s=section.timeout_s,
        warm_up=section.warm_up,
        folder=section.folder,
        slots=slots if pool.engine is EngineKind.LLAMACPP else None,
        bootstrap_port=section.bootstrap_port,
        kv_bytes_per_token=section.kv_bytes_per_token,
        source=model.for_engine(pool.engine).source if model is not None else None,
        kv_dtype=options.memory.kv_dtype,
        tensor=options.parallel.tensor,
        pipeline=options.parallel.pipeline,
    )
