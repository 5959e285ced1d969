"""Who calls: tenants, keys and the Caller that identity makes of a credential."""

from datetime import datetime
from enum import StrEnum

import msgspec

from headrace.domain.admin import Grant
from headrace.domain.ids import KeyId, TenantId
from headrace.domain.quota import NO_LIMITS, LimitSet
from headrace.domain.request import RequestClass


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
    project: str | None = None
    """A project of its tenant whose limits and allowances hold as well."""
    limits: LimitSet = NO_LIMITS
    """Its own."""
    suspended_at: datetime | None = None
    """Since when it is refused; None: it is not."""
    version: int = 1
    """Grows with each change, so that two who change it at once notice."""
    grant: Grant | None = None
    """What an admin key may do, where the record comes with it (`KeyStore.list_usable_keys`); None: nothing."""


class DegradeKind(StrEnum):
    """What may be done with a request before it is refused, when its pool is full."""

    QUEUE = "queue"
    SHORTEN = "shorten"
    """Lower its output limit."""
    CHEAPER_MODEL = "cheaper_model"
    """Answer with another declared model, and say so."""
    REFUSE = "refuse"


class DegradeStep(msgspec.Struct, frozen=True, kw_only=True):
    """One rung of a tenant's ladder, in the declared order."""

    kind: DegradeKind
    models: frozenset[str] | None = None
    """For requests of these models; None is all."""
    from_wait_s: float = 0.0
    """Taken once the wait to be expected is longer than so many seconds."""
    output_tokens: int | None = None
    """Of `shorten`."""
    model: str | None = None
    """Of `cheaper_model`."""


ALL_CLASSES = frozenset(RequestClass)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, as identity found it: the key, all it belongs to, and what it may use.

    What it may use is what every level allows; limits hold at every level (`gateway/admission/quota.py`).
    """

    tenant: TenantId
    key_id: KeyId
    models: frozenset[str] | None
    """Models it may use; None is every declared one."""
    organisation: str | None = None
    project: str | None = None
    """Name within its tenant."""
    classes: frozenset[RequestClass] = ALL_CLASSES
    default_class: RequestClass = RequestClass.STANDARD
    """Of requests that name none; always one of `classes`."""
    regions: frozenset[str] | None = None
    """Regions whose pools may serve it; None is all."""
    weight: float = 1.0
    """Its tenant's share of a full pool, against the other tenants'."""
    degrade: tuple[DegradeStep, ...] = ()
    limits: LimitSet = NO_LIMITS
    """The key's own; those of the other levels are the plan's."""

    def may_use(self, model: str) -> bool:
        return self.models is None or model in self.models
