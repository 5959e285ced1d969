"""What a gateway worker needs of `pools.<name>.queue`, with every default filled in: a part of the gateway plan."""

import msgspec

from headrace.declaration.engine_options import EMBEDDED_SEQUENCES
from headrace.declaration.model import Pool
from headrace.declaration.queue_section import QueueClass
from headrace.domain.endpoint import EngineKind
from headrace.domain.request import RequestClass

PREFILL_STEPS = 2
"""Steps' worth of prompts that an engine may have before it: one it works on, one that waits, so that it never runs dry
between two of the gateway's turns. More would only make a newcomer wait behind them. Chosen."""
LEAST_PREFILL_TOKENS = 4096
"""Below this a bound on prompts would cost more by pauses than it gives. Chosen."""


class QueueClassPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One class, without nulls."""

    longest_wait_s: float
    reserved_ratio: float
    starvation_s: float


CLASS_DEFAULTS = {
    RequestClass.INTERACTIVE: QueueClassPlan(longest_wait_s=30.0, reserved_ratio=0.0, starvation_s=10.0),
    RequestClass.STANDARD: QueueClassPlan(longest_wait_s=120.0, reserved_ratio=0.2, starvation_s=20.0),
    RequestClass.OFFLINE: QueueClassPlan(longest_wait_s=3600.0, reserved_ratio=0.05, starvation_s=60.0),
}


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How requests wait for one pool."""

    sequences: int | None = None
    """Of one endpoint; None: not declared."""
    prefill_tokens: int | None = None
    held_tokens: int | None = None
    headroom_ratio: float = 0.0625
    is_deadline_first: bool = False
    tenant_requests: int = 512
    tenant_bytes: int = 67108864
    pool_requests: int = 4096
    pool_bytes: int = 268435456
    classes: dict[RequestClass, QueueClassPlan] = msgspec.field(default_factory=lambda: dict(CLASS_DEFAULTS))


def compile_queue_plan(pool: Pool) -> QueuePlan:
    """Resolve one pool's queue with what is declared of its engine."""
    queue, batching = pool.queue, pool.options.batching
    declared = batching.max_sequences
    if declared is None and pool.engine is EngineKind.LLAMACPP and not pool.is_remote:
        declared = EMBEDDED_SEQUENCES
    copies = pool.options.parallel.data
    sequences = queue.sequences or (None if declared is None else declared * copies)
    prefill_tokens = queue.prefill_tokens
    if prefill_tokens is None and batching.batched_tokens is not None:
        prefill_tokens = max(LEAST_PREFILL_TOKENS, PREFILL_STEPS * batching.batched_tokens * copies)
    classes = queue.classes
    return QueuePlan(
        sequences=sequences,
        prefill_tokens=prefill_tokens,
        held_tokens=queue.held_tokens,
        headroom_ratio=queue.headroom_ratio,
        is_deadline_first=queue.order == "deadline",
        tenant_requests=queue.tenant_requests,
        tenant_bytes=queue.tenant_bytes,
        pool_requests=queue.pool_requests,
        pool_bytes=queue.pool_bytes,
        classes={
            RequestClass.INTERACTIVE: _class(classes.interactive, CLASS_DEFAULTS[RequestClass.INTERACTIVE]),
            RequestClass.STANDARD: _class(classes.standard, CLASS_DEFAULTS[RequestClass.STANDARD]),
            RequestClass.OFFLINE: _class(classes.offline, CLASS_DEFAULTS[RequestClass.OFFLINE]),
        },
    )


def _class(declared: QueueClass, default: QueueClassPlan) -> QueueClassPlan:
    given = {name: value for name, value in declared.model_dump().items() if value is not None}
    return msgspec.structs.replace(default, **given)
