"""What a gateway worker needs of organisations, tenants, projects and prices: a part of the gateway plan."""

import msgspec

from headrace.declaration.model import Declaration
from headrace.declaration.tenant_sections import Allowance, Budget, Degrade, Limits, TenantSection
from headrace.domain.quota import MICROSECONDS, NANOS, NO_LIMITS, LimitSet, RequestCaps, Unit
from headrace.domain.request import RequestClass
from headrace.domain.tenant import ALL_CLASSES, DegradeStep


class AllowancePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What one organisation, tenant or project may use. None is all."""

    name: str
    models: frozenset[str] | None = None
    classes: frozenset[RequestClass] = ALL_CLASSES
    regions: frozenset[str] | None = None
    limits: LimitSet = NO_LIMITS
    is_suspended: bool = False


class TenantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's rules."""

    name: str
    allowance: AllowancePlan
    organisation: str | None = None
    weight: float = 1.0
    default_class: RequestClass = RequestClass.STANDARD
    degrade: tuple[DegradeStep, ...] = ()
    projects: tuple[AllowancePlan, ...] = ()
    """By name within the tenant."""


class PricePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model: billionths of the currency."""

    model: str
    input_nanos_per_million: int
    cached_input_nanos_per_million: int
    output_nanos_per_million: int
    gpu_hour_nanos: int


class TenancyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Organisations, tenants, limits over all, and prices."""

    organisations: tuple[AllowancePlan, ...] = ()
    tenants: tuple[TenantPlan, ...] = ()
    limits: LimitSet = NO_LIMITS
    """Over all callers together."""
    named_tenants: int = 50
    """So many tenants have metrics of their own name, in this order."""
    prices: tuple[PricePlan, ...] = ()
    price_version: str | None = None
    """None: no prices are declared, and nothing has a cost."""
    currency: str = "USD"


def compile_tenancy_plan(declaration: Declaration) -> TenancyPlan:
    """Resolve the sections about callers and prices."""
    prices = declaration.prices
    return TenancyPlan(
        organisations=tuple(_allowance(name, section) for name, section in declaration.organisations.items()),
        tenants=tuple(compile_tenant(name, section) for name, section in declaration.tenants.items()),
        limits=compile_limits(declaration.quota.limits, declaration.quota.budget),
        named_tenants=declaration.quota.named_tenants,
        prices=tuple(
            PricePlan(
                model=model,
                input_nanos_per_million=nanos(price.input_per_million),
                cached_input_nanos_per_million=nanos(
                    price.input_per_million
                    if price.cached_input_per_million is None
                    else price.cached_input_per_million
                ),
                output_nanos_per_million=nanos(price.output_per_million),
                gpu_hour_nanos=nanos(price.gpu_hour),
            )
            for model, price in prices.models.items()
        ),
        price_version=prices.version if prices.models else None,
        currency=prices.currency,
    )


def compile_tenant(name: str, section: TenantSection) -> TenantPlan:
    """Resolve one tenant, declared in the file or made over the API."""
    return TenantPlan(
        name=name,
        allowance=_allowance(name, section),
        organisation=section.organisation,
        weight=section.weight,
        default_class=section.default_class,
        degrade=tuple(_degrade(step) for step in section.degrade),
        projects=tuple(_allowance(project, one) for project, one in section.projects.items()),
    )


def compile_limits(limits: Limits, budget: Budget) -> LimitSet:
    """Put limits and budgets of one level into the quota's own measures; for keys made over the API too."""
    amounts = {
        Unit.REQUESTS_PER_MIN: limits.requests_per_min,
        Unit.INPUT_TOKENS_PER_MIN: limits.input_tokens_per_min,
        Unit.OUTPUT_TOKENS_PER_MIN: limits.output_tokens_per_min,
        Unit.GPU_SECONDS_PER_MIN: None
        if limits.gpu_seconds_per_min is None
        else round(limits.gpu_seconds_per_min * MICROSECONDS),
        Unit.CONCURRENT_REQUESTS: limits.concurrent_requests,
        Unit.CONCURRENT_INTERACTIVE: limits.concurrent_interactive,
        Unit.CONCURRENT_STREAMING: limits.concurrent_streaming,
        Unit.CONCURRENT_OFFLINE: limits.concurrent_offline,
        Unit.BUDGET_PER_DAY: None if budget.per_day is None else nanos(budget.per_day),
        Unit.BUDGET_PER_MONTH: None if budget.per_month is None else nanos(budget.per_month),
    }
    return LimitSet(
        amounts={unit: amount for unit, amount in amounts.items() if amount is not None},
        caps=RequestCaps(**limits.per_request.model_dump()),
    )


def nanos(money: float) -> int:
    """Billionths of the currency."""
    return round(money * NANOS)


def _allowance(name: str, section: Allowance) -> AllowancePlan:
    return AllowancePlan(
        name=name,
        models=_names(section.models),
        classes=frozenset(section.classes),
        regions=_names(section.regions),
        limits=compile_limits(section.limits, section.budget),
        is_suspended=section.suspended,
    )


def _names(names: tuple[str, ...]) -> frozenset[str] | None:
    return None if "*" in names else frozenset(names)


def _degrade(step: Degrade) -> DegradeStep:
    return DegradeStep(
        kind=step.step,
        models=_names(step.models),
        from_wait_s=step.from_wait_s,
        output_tokens=step.output_tokens,
        model=step.model,
    )
