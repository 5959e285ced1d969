"""The shape of tenants and what belongs to them."""

from typing import Any

import pytest
from pydantic import ValidationError

from headrace.declaration.tenant_sections import TenantSection


@pytest.mark.parametrize("name", ["b/c", "/", "a/", "", "a b"])
def test_a_project_is_named_without_a_slash(name: str) -> None:
    """Project c of tenant a/b and project b/c of tenant a would be one: one limit, one suspension."""
    with pytest.raises(ValidationError):
        TenantSection.model_validate({"projects": {name: {}}})
    assert "b.c" in TenantSection.model_validate({"projects": {"b.c": {}}}).projects


@pytest.mark.parametrize(
    "section",
    [
        {"budget": {"per_day": 1e300}},
        {"budget": {"per_month": float("inf")}},
        {"limits": {"gpu_seconds_per_min": float("inf")}},
        {"limits": {"gpu_seconds_per_min": 1e300}},
        {"limits": {"requests_per_min": 2**53}},
        {"limits": {"concurrent_requests": 10**40}},
        {"weight": 5e-324},
        {"weight": float("nan")},
    ],
)
def test_a_number_that_nothing_can_count_to_is_refused(section: dict[str, Any]) -> None:
    """Here, and not where a plan is made of it: there it would stop every later change of callers."""
    with pytest.raises(ValidationError):
        TenantSection.model_validate(section)
