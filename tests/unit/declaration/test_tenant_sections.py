"""The shape of tenants and what belongs to them."""

import pytest
from pydantic import ValidationError

from headrace.declaration.tenant_sections import TenantSection


@pytest.mark.parametrize("name", ["b/c", "/", "a/", "", "a b"])
def test_a_project_is_named_without_a_slash(name: str) -> None:
    """Project c of tenant a/b and project b/c of tenant a would be one: one limit, one suspension."""
    with pytest.raises(ValidationError):
        TenantSection.model_validate({"projects": {name: {}}})
    assert "b.c" in TenantSection.model_validate({"projects": {"b.c": {}}}).projects
