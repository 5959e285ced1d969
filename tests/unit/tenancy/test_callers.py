"""What a caller may use: what all its levels allow together."""

import pytest

from headrace.declaration.model import Declaration
from headrace.declaration.tenancy_plan import TenancyPlan, compile_tenancy_plan
from headrace.domain.errors import RequestError
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.request import RequestClass
from headrace.domain.tenant import ALL_CLASSES, Caller
from headrace.tenancy.callers import CallerMaker, intersection


def plan_of(**sections: object) -> TenancyPlan:
    pool = {"model": "a", "engine": "vllm", "endpoints": ["http://h"]}
    return compile_tenancy_plan(
        Declaration.model_validate({"models": {"a": {}, "b": {}, "c": {}}, "pools": {"p": pool}, **sections})
    )


def make(
    plan: TenancyPlan, tenant: str = "t", project: str | None = None, models: frozenset[str] | None = None
) -> Caller:
    return CallerMaker(plan).make(tenant=TenantId(tenant), key_id=KeyId("k"), project=project, models=models)


def test_a_plain_tenant_may_use_everything() -> None:
    """Nothing is taken away where nothing is declared."""
    caller = make(plan_of(tenants={"t": {}}))
    assert (caller.models, caller.regions, caller.classes) == (None, None, ALL_CLASSES)
    assert (caller.organisation, caller.project, caller.weight, caller.degrade) == (None, None, 1.0, ())


def test_every_level_takes_away() -> None:
    """Models, classes and regions are those that organisation, tenant, project and key all allow."""
    plan = plan_of(
        organisations={"o": {"models": ["a", "b"], "regions": ["eu", "us"]}},
        tenants={
            "t": {
                "organisation": "o",
                "classes": ["interactive", "offline"],
                "default_class": "interactive",
                "weight": 3,
                "projects": {"w": {"classes": ["offline"], "regions": ["eu", "asia"], "models": ["*"]}},
            }
        },
    )
    caller = make(plan, project="w", models=frozenset({"b", "c"}))
    assert (caller.models, caller.regions) == (frozenset({"b"}), frozenset({"eu"}))
    assert (caller.classes, caller.default_class) == (frozenset({RequestClass.OFFLINE}), RequestClass.OFFLINE)
    assert (caller.organisation, caller.project, caller.weight) == ("o", "w", 3.0)
    assert make(plan).default_class is RequestClass.INTERACTIVE


@pytest.mark.parametrize(
    ("sections", "project", "message"),
    [
        ({"tenants": {"other": {}}}, None, "tenant 't' is not declared here"),
        ({"tenants": {"t": {}}}, "w", "project 'w' of tenant 't' is not declared here"),
        ({"tenants": {"t": {"organisation": "o"}}}, None, "organisation 'o' of tenant 't' is no longer declared"),
        (
            {
                "organisations": {"o": {"classes": ["offline"]}},
                "tenants": {"t": {"organisation": "o", "classes": ["standard"]}},
            },
            None,
            "may send no class",
        ),
    ],
)
def test_levels_that_are_gone(sections: dict[str, object], project: str | None, message: str) -> None:
    """A key of something that is no longer declared is refused, and why is said."""
    with pytest.raises(RequestError, match=message):
        make(plan_of(**sections), project=project)


@pytest.mark.parametrize("level", ["organisation", "tenant", "project"])
def test_a_suspended_level_refuses_all_below_it(level: str) -> None:
    """Suspending an organisation suspends its tenants and their projects."""
    marks = {named: {"suspended": named == level} for named in ("organisation", "tenant", "project")}
    plan = plan_of(
        organisations={"o": marks["organisation"]},
        tenants={"t": {"organisation": "o", "projects": {"w": marks["project"]}, **marks["tenant"]}},
    )
    with pytest.raises(RequestError, match=f"{level} '.' is suspended"):
        make(plan, project="w")


def test_all_and_some() -> None:
    """None is all."""
    some = frozenset({"x", "y"})
    assert intersection(None, None) is None
    assert intersection(None, some) == intersection(some, None) == some
    assert intersection(some, frozenset({"y", "z"})) == {"y"}
