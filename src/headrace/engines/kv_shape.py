"""What the bytes of an engine's KV depend on, and whether two engines can hand it over.

Equal must be: engine and version, model and revision, KV number format, block size, layout, pipeline stages.
Tensor-parallel sizes follow the engine's rule.
"""

from dataclasses import dataclass

from headrace.declaration.handover_plan import HandoverPlan
from headrace.domain.endpoint import EngineKind
from headrace.engines.handover import TensorRule


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """What an engine's KV looks like. None: not known, which fits everything."""

    engine: EngineKind
    version: str | None = None
    model: str | None = None
    revision: str | None = None
    kv_dtype: str | None = None
    block_tokens: int | None = None
    layout: str | None = None
    """The engine's own word, such as vLLM's HND."""
    tensor: int = 1
    pipeline: int = 1


EQUAL_MEMBERS = ("engine", "version", "model", "revision", "kv_dtype", "block_tokens", "layout", "pipeline")


def find_mismatch(prefill: KvShape, decode: KvShape, rule: TensorRule) -> str | None:
    """Return why the two cannot hand KV over, as words for `kv_layout_mismatch`; None: nothing speaks against it."""
    for name in EQUAL_MEMBERS:
        left, right = getattr(prefill, name), getattr(decode, name)
        if left is not None and right is not None and left != right:
            return f"{name} is {left} at prefill and {right} at decode"
    small, large = sorted((prefill.tensor, decode.tensor))
    if rule is TensorRule.EQUAL and small != large:
        return f"tensor is {prefill.tensor} at prefill and {decode.tensor} at decode: {prefill.engine} needs them equal"
    if large % small:
        return (
            f"tensor is {prefill.tensor} at prefill and {decode.tensor} at decode: {prefill.engine} needs one to "
            "divide the other"
        )
    return None


def declared_shape(plan: HandoverPlan, engine: EngineKind, model: str) -> KvShape:
    """Return what a pool declares of it; version and layout are the engine's own affair."""
    return KvShape(
        engine=engine,
        model=plan.source or model,
        kv_dtype=plan.kv_dtype,
        tensor=plan.tensor,
        pipeline=plan.pipeline,
    )
