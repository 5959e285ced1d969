"""What the types cannot see of `disaggregation` and `handover`: halves without their other half, and no effect."""

from collections.abc import Iterator

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.model import Declaration, Pool
from headrace.domain.endpoint import EngineKind


def lint_handover(declaration: Declaration) -> Iterator[Finding]:
    """Yield what is wrong or doubtful. Whether the KV of two pools fits is asked of their engines (`engines/`)."""
    for name, pool in declaration.pools.items():
        path = ("pools", name)
        if pool.options.disaggregation is None:
            if "handover" in pool.model_fields_set:
                yield warning((*path, "handover"), "has no effect without disaggregation", "Set disaggregation.role.")
            continue
        role = pool.options.disaggregation.role
        others = [other for other in declaration.pools.values() if other is not pool and other.model == pool.model]
        if role != "both" and not any(_is_other_half(role, other) for other in others):
            missing = "decode" if role == "prefill" else "prefill"
            message = f"is {role}, and no pool of model {pool.model} has the role {missing}: nothing is handed over"
            hint = f"Declare a pool with disaggregation: {{role: {missing}}}."
            finding = error if pool.engine is EngineKind.SGLANG else warning  # it answers nothing alone
            yield finding((*path, "disaggregation", "role"), message, hint)
        if pool.engine is EngineKind.LLAMACPP:
            yield from _slots(declaration, name, pool)


def _is_other_half(role: str, other: Pool) -> bool:
    disaggregation = other.options.disaggregation
    return disaggregation is not None and disaggregation.role != role


def _slots(declaration: Declaration, name: str, pool: Pool) -> Iterator[Finding]:
    path = ("pools", name, "handover")
    if pool.is_remote and pool.handover.folder is None:
        message = "is needed: llama.cpp hands over by files, which the gateway removes"
        yield error((*path, "folder"), message, "Name the folder that both engines have as --slot-save-path.")
    slots = pool.handover.slots or pool.options.batching.max_sequences
    if slots is not None and slots < declaration.gateway.workers:
        message = f"is {slots}, fewer than gateway.workers: each worker gives out slots of its own"
        yield warning((*path, "slots"), message, "Some workers will hand nothing over; lower gateway.workers.")
