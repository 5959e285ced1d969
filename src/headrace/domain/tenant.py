"""Who calls: tenants, keys and the Caller that identity makes of a credential."""

from datetime import datetime
from enum import StrEnum

import msgspec

from headrace.domain.ids import KeyId, TenantId


class Scope(StrEnum):
    """What a key may be used for. A key has exactly one: an admin key cannot infer, an inference key cannot manage."""

    INFERENCE = "inference"
    ADMIN = "admin"


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One API key as stored: everything but the secret.

    A secret is 32 random bytes, so its SHA-256 needs no salt or stretching (there is no dictionary to try).
    """

    key_id: KeyId
    secret_sha256: bytes
    """SHA-256 of the whole key text `hr-<key id>-<secret>`."""
    tenant: TenantId
    scope: Scope
    name: str
    """Operator's own note; shown, never interpreted."""
    allowed_models: tuple[str, ...] | None
    """Model names this key may use, narrower than its tenant's; None is all of the tenant's."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, as identity found it: the key, its tenant, and what it may use."""

    tenant: TenantId
    key_id: KeyId
    models: frozenset[str] | None
    """Models it may use; None is every declared one."""

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models
