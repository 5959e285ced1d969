"""A caller from what is declared of its organisation, tenant, project and key: what all of them allow together.

Used by every way of proving who one is: keys, tokens of an identity provider, headers of another gateway.
"""

from collections.abc import Mapping

from headrace.declaration.tenancy_plan import AllowancePlan, TenancyPlan, TenantPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.tenant import ALL_CLASSES, Caller

Names = frozenset[str] | None
"""None is all."""


class CallerMaker:
    """Makes callers by one plan. Pure; built once per plan."""

    def __init__(self, plan: TenancyPlan) -> None:
        self._tenants: Mapping[str, TenantPlan] = {tenant.name: tenant for tenant in plan.tenants}
        self._organisations = {organisation.name: organisation for organisation in plan.organisations}

    def make(
        self,
        *,
        tenant: TenantId,
        key_id: KeyId,
        project: str | None = None,
        models: Names = None,
        limits: LimitSet = NO_LIMITS,
    ) -> Caller:
        """Return the caller. `models` and `limits` are the key's own.

        Raises: RequestError SUSPENDED where a level is suspended, FORBIDDEN where it is no longer declared.
        """
        plan = self._tenants.get(tenant)
        if plan is None:
            raise _forbidden(f"the caller's tenant {tenant!r} is not declared here")
        levels = [("tenant", plan.allowance)]
        if plan.organisation is not None:
            organisation = self._organisations.get(plan.organisation)
            if organisation is None:
                raise _forbidden(f"organisation {plan.organisation!r} of tenant {tenant!r} is no longer declared")
            levels.insert(0, ("organisation", organisation))
        if project is not None:
            levels.append(("project", _project(plan, project)))
        for level, allowance in levels:
            if allowance.is_suspended:
                message = f"{level} {allowance.name!r} is suspended; ask the operator"
                raise RequestError(ErrorCode.SUSPENDED, message, is_final=True)
            models = intersection(models, allowance.models)
        allowed = [allowance for _, allowance in levels]
        classes = ALL_CLASSES.intersection(*(allowance.classes for allowance in allowed))
        if not classes:
            raise _forbidden(f"tenant {tenant!r} may send no class of requests")
        return Caller(
            tenant=tenant,
            key_id=key_id,
            models=models,
            organisation=plan.organisation,
            project=project,
            classes=classes,
            default_class=plan.default_class if plan.default_class in classes else min(classes),
            regions=_all_regions(allowed),
            weight=plan.weight,
            degrade=plan.degrade,
            limits=limits,
        )

    def make_refused(self, *, tenant: TenantId, key_id: KeyId, project: str | None = None) -> Caller:
        """Whom a request was refused to, for log and ledger: may use nothing."""
        plan = self._tenants.get(tenant)
        organisation = None if plan is None else plan.organisation
        return Caller(tenant=tenant, key_id=key_id, models=frozenset(), organisation=organisation, project=project)


def intersection(some: Names, others: Names) -> Names:
    """What both allow."""
    if some is None or others is None:
        return others if some is None else some
    return some & others


def _all_regions(levels: list[AllowancePlan]) -> Names:
    regions: Names = None
    for level in levels:
        regions = intersection(regions, level.regions)
    return regions


def _project(plan: TenantPlan, name: str) -> AllowancePlan:
    for project in plan.projects:
        if project.name == name:
            return project
    raise _forbidden(f"the caller's project {name!r} of tenant {plan.name!r} is not declared here")


def _forbidden(what: str) -> RequestError:
    return RequestError(ErrorCode.FORBIDDEN, f"{what}; ask the operator")
