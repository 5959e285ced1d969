"""Keys as people see them: in tables, in `--json`, in the control API and in the audit log. Never a secret."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from headrace.domain.admin import Grant
from headrace.domain.tenant import KeyRecord, Scope
from headrace.tenancy.limit_words import limit_words


class KeyState(StrEnum):
    """Whether a key may be used."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
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
    suspended_at: datetime | None = None
    project: str | None = None
    limits: dict[str, Any] = {}
    """Its own, as headrace.yaml would say them; those of tenant and project hold as well."""
    budget: dict[str, Any] = {}
    grant: Grant | None = None
    """What an admin key may do."""
    version: int = 1


def view_key(record: KeyRecord, now: datetime, grant: Grant | None = None) -> KeyView:
    """Show `record` as it stands at `now`."""
    state = KeyState.ACTIVE
    if record.revoked_at is not None:
        state = KeyState.REVOKED
    elif record.expires_at is not None and record.expires_at <= now:
        state = KeyState.EXPIRED
    elif record.suspended_at is not None:
        state = KeyState.SUSPENDED
    words = limit_words(record.limits)
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
        suspended_at=record.suspended_at,
        project=record.project,
        limits=words["limits"],
        budget=words["budget"],
        grant=grant,
        version=record.version,
    )
