"""Whose admin key opens what the gateway shows to operators alone."""

from datetime import UTC, datetime

import msgspec
import pytest

from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.admin import Grant, Role
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.gateway.identity.bearer import Identity
from headrace.tenancy.keys import KeyRing, generate_key

NOW = datetime.now(tz=UTC)


@pytest.mark.parametrize(
    ("scope", "grant", "suspended_at", "is_admin"),
    [
        (Scope.ADMIN, Grant(role=Role.VIEWER), None, True),
        (Scope.ADMIN, Grant(role=Role.OWNER, tenant=TenantId("t")), None, False),
        (Scope.ADMIN, Grant(role=Role.OWNER), NOW, False),
        (Scope.ADMIN, None, None, False),
        (Scope.INFERENCE, None, None, False),
    ],
)
def test_only_a_role_that_reaches_everywhere_is_shown_everything(scope, grant, suspended_at, is_admin):
    """Not a tenant's own operator, not a suspended one, not a caller."""
    key, record = generate_key(tenant=TenantId("t"), scope=scope, created_at=NOW)
    ring = KeyRing([msgspec.structs.replace(record, grant=grant, suspended_at=suspended_at)])
    assert Identity(ring, TenancyPlan()).is_admin(key.encode(), NOW.timestamp()) is is_admin
