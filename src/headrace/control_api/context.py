"""What every control route works with."""

from dataclasses import dataclass

from headrace.control_api.access import NOBODY, AdminGate
from headrace.control_api.operations import Operations
from headrace.database.connect import Database
from headrace.domain.admin import Principal
from headrace.domain.clock import Clock
from headrace.domain.ids import TenantId
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.governing import Governor
from headrace.tenancy.key_store import KeyStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlContext:
    """The parts, joined by `app.create_app`, and who asks: each request has its own."""

    operations: Operations
    database: Database
    keys: KeyStore
    entries: EntryStore
    gate: AdminGate
    clock: Clock
    principal: Principal = NOBODY

    @property
    def tenant(self) -> TenantId | None:
        """The only tenant whose part may be shown and touched; None: all."""
        return self.principal.grant.tenant

    @property
    def governor(self) -> Governor:
        """The rules for organisations and tenants, by the declaration in force."""
        return Governor(
            loaded=self.operations.loaded(),
            entries=self.entries,
            keys=self.keys,
            clock=self.clock,
            shows_folder=self.tenant is None,
        )
