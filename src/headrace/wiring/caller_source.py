"""All that the supervisor reads of callers: keys, what the API has added, and that the audit log knows the file."""

import structlog

from headrace.database.connect import Database
from headrace.database.url import DatabaseError
from headrace.declaration.load import Loaded
from headrace.domain.clock import Clock
from headrace.domain.tenant import KeyRecord
from headrace.settings import Settings
from headrace.tenancy.declared import note_declared
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.overlay import TenancyOverlay
from headrace.wiring.key_source import KeySource
from headrace.wiring.overlay_source import OverlaySource

log = structlog.get_logger("headrace.supervisor")


class CallerSource:
    """Read every half second by the supervisor's poll.

    Concurrency: one caller at a time, from any thread; `declared` is set by the event loop.
    """

    def __init__(
        self, keys: KeySource, entries: EntryStore, database: Database, clock: Clock, settings: Settings
    ) -> None:
        self._keys = keys
        self._overlay = OverlaySource(entries, settings)
        self._database = database
        self._clock = clock
        self.declared: Loaded | None = None
        """A declaration that has come into force and is not in the audit log yet."""

    def read_keys(self) -> tuple[KeyRecord, ...]:
        """See `KeySource.read`."""
        return self._keys.read()

    def read_overlay(self) -> TenancyOverlay:
        """What the API has added; a declaration that waits for the audit log is noted first."""
        declared = self.declared
        if declared is not None and self.note_declared(declared) and self.declared is declared:
            self.declared = None
        return self._overlay.read()

    def note_declared(self, loaded: Loaded) -> bool:
        """Note what a file says of callers; False where the database is away, and it must be tried again."""
        try:
            note_declared(self._database, self._clock, loaded)
        except DatabaseError as error:
            log.warning("the audit log cannot be written; it will be tried again", reason=str(error))
            self.declared = loaded
            return False
        return True
