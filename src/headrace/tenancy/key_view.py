"""Keys and tenants as people see them: in tables, in `--json` and in the control API. Never a secret, nor its hash."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum

import msgspec

from headrace.declaration.model import Declaration
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.tenant import KeyRecord, Scope


class KeyState(StrEnum):
    """Whether a key may be used."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """One key, shown."""

    key_id: str
    tenant: str
    scope: Scope
    state: KeyState
    name: str
    allowed_models: tuple[str, ...] | None
    """None: every model of its tenant."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    project: str | None = None
    limits: LimitSet = NO_LIMITS
    """Its own; those of tenant and project hold as well."""


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """One declared tenant, its limits and how many keys it has. A limit of None is no limit."""

    tenant: str
    models: tuple[str, ...]
    requests_per_min: int | None
    concurrent_requests: int | None
    active_keys: int
    organisation: str | None = None
    is_suspended: bool = False
    is_declared: bool = True
    """False: keys exist for a tenant that the declaration does not have; they are refused."""


def view_key(record: KeyRecord, now: datetime) -> KeyView:
    """Show `record` as it stands at `now`."""
    state = KeyState.ACTIVE
    if record.revoked_at is not None:
        state = KeyState.REVOKED
    elif record.expires_at is not None and record.expires_at <= now:
        state = KeyState.EXPIRED
    return KeyView(
        key_id=record.key_id,
        tenant=record.tenant,
        scope=record.scope,
        state=state,
        name=record.name,
        allowed_models=record.allowed_models,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        project=record.project,
        limits=record.limits,
    )


def view_tenants(declaration: Declaration, records: Iterable[KeyRecord], now: datetime) -> tuple[TenantView, ...]:
    """Show the declared tenants, and after them those that only keys still name."""
    active = Counter[str](record.tenant for record in records if view_key(record, now).state is KeyState.ACTIVE)
    declared = tuple(
        TenantView(
            tenant=name,
            models=tenant.models,
            requests_per_min=tenant.limits.requests_per_min,
            concurrent_requests=tenant.limits.concurrent_requests,
            active_keys=active[name],
            organisation=tenant.organisation,
            is_suspended=tenant.suspended,
        )
        for name, tenant in declaration.tenants.items()
    )
    left_over = tuple(
        TenantView(
            tenant=name,
            models=(),
            requests_per_min=None,
            concurrent_requests=None,
            active_keys=count,
            is_declared=False,
        )
        for name, count in sorted(active.items())
        if name not in declaration.tenants
    )
    return declared + left_over
