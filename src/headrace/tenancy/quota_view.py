"""Limits and budgets as they are shown: in the words of headrace.yaml, for whoever may see them. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from headrace.declaration.model import Declaration
from headrace.domain.quota import BUDGETS, MICROSECONDS, NANOS, Level, Unit
from headrace.domain.quota_status import LimitStatus
from headrace.domain.tenant import KeyRecord
from headrace.tenancy.overlay import project_name

BUDGET_MARKS = (0.8, 1.0)
"""Shares of a budget at which somebody should know. Source: issue 5."""


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """One limit and its use. Money in the price table's currency, GPU time in seconds."""

    level: Level
    name: str
    limit_name: str
    """As in headrace.yaml: `requests_per_min`, `per_day`."""
    limit: float
    used: float
    """Of slots (`concurrent_requests` ...): in work now."""
    remaining: float
    used_ratio: float | None
    """None where the limit is 0."""
    reset_s: float | None
    """None: not known."""
    passed_mark: float | None = None
    """Of a budget: the highest of 0.8 and 1.0 that is passed."""
    currency: str | None = None
    leased: float | None = None
    """Of slots that several gateway workers share: what workers hold beside that for the next requests, and give to
    each other. They are among `remaining`. None: nothing is leased."""


class LimitFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Whose limits are shown: those that hold for the callers that are asked about."""

    tenant: str | None = None
    project: str | None = None
    key_id: str | None = None
    is_scoped: bool = False
    """Only the tenant's own levels: an organisation's and the gateway's use would tell about others."""


def view_limits(
    statuses: Iterable[LimitStatus], declaration: Declaration, keys: Mapping[str, KeyRecord], only: LimitFilter
) -> tuple[LimitView, ...]:
    """Show what `only` asks for, widest level first."""
    order = tuple(Level)
    seen = [one for one in statuses if _is_wanted(one, declaration, keys, only)]
    seen.sort(key=lambda one: (order.index(one.level), one.name))
    return tuple(_view(one, declaration.prices.currency) for one in seen)


def _is_wanted(status: LimitStatus, declaration: Declaration, keys: Mapping[str, KeyRecord], only: LimitFilter) -> bool:
    """Whether the limit holds for the tenant, project or key that is asked about."""
    key = keys.get(only.key_id) if only.key_id is not None else None
    if only.key_id is not None and (key is None or (only.tenant is not None and key.tenant != only.tenant)):
        return False
    tenant = key.tenant if key is not None else only.tenant
    project = key.project if key is not None else only.project
    if status.level is Level.KEY:
        owner = keys.get(status.name)
        if only.key_id is not None:
            return status.name == only.key_id
        return tenant is None or (owner is not None and owner.tenant == tenant and project in (None, owner.project))
    if tenant is None:
        return True
    if status.level is Level.PROJECT:
        if project is not None:
            return status.name == project_name(tenant, project)
        declared = declaration.tenants.get(tenant)
        return declared is not None and status.name in {project_name(tenant, one) for one in declared.projects}
    if status.level is Level.TENANT:
        return status.name == tenant
    if only.is_scoped:
        return False
    section = declaration.tenants.get(tenant)
    return status.level is Level.GATEWAY or (section is not None and status.name == section.organisation)


def _view(status: LimitStatus, currency: str) -> LimitView:
    is_budget = status.unit in BUDGETS
    measure = NANOS if is_budget else MICROSECONDS if status.unit is Unit.GPU_SECONDS_PER_MIN else 1
    ratio = status.used / status.limit if status.limit else None
    reached = 1.0 if ratio is None else ratio
    return LimitView(
        level=status.level,
        name=status.name,
        limit_name=status.unit.value.removeprefix("budget_") if is_budget else status.unit.value,
        limit=_scaled(status.limit, measure),
        used=_scaled(status.used, measure),
        remaining=_scaled(status.remaining, measure),
        used_ratio=None if ratio is None else round(ratio, 4),
        reset_s=None if status.reset_s is None else round(status.reset_s, 3),
        passed_mark=max((mark for mark in BUDGET_MARKS if reached >= mark), default=None) if is_budget else None,
        currency=currency if is_budget else None,
        leased=status.leased,
    )


def _scaled(amount: int, measure: int) -> float:
    return amount if measure == 1 else amount / measure
