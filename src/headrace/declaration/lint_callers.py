"""What the types cannot see of `organisations`, `tenants`, `quota` and `prices`: references, and limits without use."""

from collections.abc import Iterator

from headrace.declaration.finding import Finding, error, warning
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import KeyPath
from headrace.declaration.tenant_sections import Allowance, Budget, Limits, TenantSection

LONGEST_MONTH_DAYS = 31
SHARED_BUDGET_MOST = 9_000_000
"""Where workers or gateways share a budget, billionths of it are counted with 53 bits, as Redis' scripts have them."""


def lint_callers(declaration: Declaration, models: frozenset[str]) -> Iterator[Finding]:
    """Yield what is wrong or doubtful. `models` are all names that the file declares, broken ones too."""
    regions = frozenset(pool.region for pool in declaration.pools.values() if pool.region is not None)
    callable_names = models | declaration.auto_models.keys()
    for name, organisation in declaration.organisations.items():
        path: KeyPath = ("organisations", name)
        yield from _allowance(path, "organisation", organisation, callable_names, regions)
        if not any(tenant.organisation == name for tenant in declaration.tenants.values()):
            yield warning(path, "no tenant belongs to this organisation", "Name it in a tenant, or take it out.")
    for name, tenant in declaration.tenants.items():
        yield from _tenant(("tenants", name), tenant, declaration, models, regions)
    for model in declaration.prices.models:
        if model not in models:
            yield error(("prices", "models", model), "there is no such model", did_you_mean(model, models))
    yield from _unpriced(declaration)
    if declaration.gateway.workers > 1 or declaration.gateway.sharing.redis is not None:
        yield from _too_large_to_share(declaration)


def _tenant(
    path: KeyPath, tenant: TenantSection, declaration: Declaration, models: frozenset[str], regions: frozenset[str]
) -> Iterator[Finding]:
    callable_names = models | declaration.auto_models.keys()
    yield from _allowance(path, "tenant", tenant, callable_names, regions)
    organisation = tenant.organisation
    if organisation is not None and organisation not in declaration.organisations:
        hint = did_you_mean(organisation, declaration.organisations)
        yield error((*path, "organisation"), "there is no such organisation", hint)
    for name, project in tenant.projects.items():
        yield from _allowance((*path, "projects", name), "project", project, callable_names, regions)
    for number, step in enumerate(tenant.degrade):
        for key, named in (("model", step.model), *(("models", model) for model in step.models)):
            if named is not None and named != "*" and named not in models:
                yield error((*path, "degrade", number, key), "there is no such model", did_you_mean(named, models))


def _allowance(
    path: KeyPath, level: str, section: Allowance, models: frozenset[str], regions: frozenset[str]
) -> Iterator[Finding]:
    for number, model in enumerate(section.models):
        if model != "*" and model not in models:
            yield error((*path, "models", number), "there is no such model", did_you_mean(model, models))
    for number, region in enumerate(section.regions):
        if region != "*" and region not in regions:
            yield error((*path, "regions", number), "no pool is in this region", did_you_mean(region, regions))
    if not section.models:
        yield warning((*path, "models"), f"the {level} may use no model", 'Name models, or "*" for all.')
    if not section.classes:
        yield error((*path, "classes"), f"the {level} may send no class of requests", "Name at least one.")
    for part, key in _zeros(section.limits, section.budget):
        yield warning((*path, part, key), f"0 refuses every request of this {level}")


def _zeros(limits: Limits, budget: Budget) -> Iterator[tuple[str, str]]:
    """Limits of 0 that no request passes; those of one kind of requests may be meant."""
    for key in (
        *("requests_per_min", "input_tokens_per_min", "output_tokens_per_min", "gpu_seconds_per_min"),
        "concurrent_requests",
    ):
        if getattr(limits, key) == 0:
            yield "limits", key
    for key in ("per_day", "per_month"):
        if getattr(budget, key) == 0:
            yield "budget", key


def _unpriced(declaration: Declaration) -> Iterator[Finding]:
    """A budget counts costs: models without a price are free, and spend nothing of it."""
    sections = (declaration.quota, *declaration.organisations.values(), *declaration.tenants.values())
    days = declaration.ledger.retention_days
    if days is not None and days < LONGEST_MONTH_DAYS and any(one.budget.per_month is not None for one in sections):
        yield warning(
            ("ledger", "retention_days"),
            f"budgets per month are declared, and after {days} days their first costs are forgotten at a restart",
            f"Keep {LONGEST_MONTH_DAYS} days or more.",
        )
    budgeted = _budgeted_models(declaration)
    unpriced = [model for model in declaration.models if model in budgeted - declaration.prices.models.keys()]
    if unpriced:
        yield warning(
            ("prices", "models"),
            f"a budget is declared, but these models have no price and cost nothing: {', '.join(unpriced[:5])}",
            "Give their prices.",
        )


def _budgeted_models(declaration: Declaration) -> frozenset[str]:
    """The models that somebody under a budget may use."""

    def usable(section: Allowance) -> frozenset[str]:
        if "*" in section.models:
            return frozenset(declaration.models)
        chosen = [declaration.auto_models[name].models for name in section.models if name in declaration.auto_models]
        return frozenset(section.models).union(*chosen)

    if declaration.quota.budget.model_fields_set:
        return frozenset(declaration.models)
    organisations = {name: usable(one) for name, one in declaration.organisations.items()}
    found = [organisations[name] for name, one in declaration.organisations.items() if one.budget.model_fields_set]
    for tenant in declaration.tenants.values():
        mine = usable(tenant) & organisations.get(tenant.organisation or "", frozenset(declaration.models))
        found += [mine] if tenant.budget.model_fields_set else []
        found += [mine & usable(one) for one in tenant.projects.values() if one.budget.model_fields_set]
    return frozenset[str]().union(*found)


def _too_large_to_share(declaration: Declaration) -> Iterator[Finding]:
    budgets: list[tuple[KeyPath, Budget]] = [(("quota",), declaration.quota.budget)]
    budgets += [(("organisations", name), one.budget) for name, one in declaration.organisations.items()]
    for name, tenant in declaration.tenants.items():
        budgets.append((("tenants", name), tenant.budget))
        budgets += [(("tenants", name, "projects", part), one.budget) for part, one in tenant.projects.items()]
    for path, budget in budgets:
        for key in ("per_day", "per_month"):
            if (getattr(budget, key) or 0) > SHARED_BUDGET_MOST:
                message = f"shared by several workers or gateways, only {SHARED_BUDGET_MOST} of it can be spent"
                yield warning(
                    (*path, "budget", key), message, "Count in a larger unit: prices and budgets in thousands."
                )
