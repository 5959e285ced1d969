"""Limits in the words of headrace.yaml, from the quota's own measures: the way back of `compile_limits`."""

from collections.abc import Mapping

from headrace.declaration.tenancy_plan import compile_limits
from headrace.declaration.tenant_sections import Budget, Limits
from headrace.domain.quota import MICROSECONDS, NANOS, LimitSet, Unit

_BUDGET_KEYS = {Unit.BUDGET_PER_DAY: "per_day", Unit.BUDGET_PER_MONTH: "per_month"}


def limit_words(limits: LimitSet) -> dict[str, dict[str, object]]:
    """What is limited: `{"limits": {...}, "budget": {...}}`, both without what is not limited."""
    said: dict[str, object] = {}
    budget: dict[str, object] = {}
    for unit, amount in limits.amounts.items():
        if unit in _BUDGET_KEYS:
            budget[_BUDGET_KEYS[unit]] = amount / NANOS
        else:
            said[unit.value] = amount / MICROSECONDS if unit is Unit.GPU_SECONDS_PER_MIN else amount
    caps = {name: getattr(limits.caps, name) for name in limits.caps.__struct_fields__}
    caps = {name: cap for name, cap in caps.items() if cap is not None}
    if caps:
        said["per_request"] = caps
    return {"limits": said, "budget": budget}


def read_limit_words(words: Mapping[str, Mapping[str, object]]) -> LimitSet:
    """Read `{"limits": {...}, "budget": {...}}`. Raises: pydantic.ValidationError."""
    return compile_limits(
        Limits.model_validate(words.get("limits", {})), Budget.model_validate(words.get("budget", {}))
    )
