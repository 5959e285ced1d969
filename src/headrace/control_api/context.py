"""What every control route works with."""

from dataclasses import dataclass

from headrace.control_api.access import AdminGate
from headrace.control_api.operations import Operations
from headrace.database.connect import Database
from headrace.domain.clock import Clock
from headrace.tenancy.key_store import KeyStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlContext:
    """The parts, joined by `app.create_app`."""

    operations: Operations
    database: Database
    keys: KeyStore
    gate: AdminGate
    clock: Clock
