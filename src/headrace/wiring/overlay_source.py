"""What the control API has added to the declaration, from the database; while that is away, what was last read.

The copy in run/known-tenants.json carries it over a restart: a suspended tenant stays suspended.
"""

from pathlib import Path

import msgspec
import structlog

from headrace.database.url import DatabaseError
from headrace.domain.undecodable import UNDECODABLE
from headrace.settings import Settings
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.overlay import NOTHING, TenancyOverlay
from headrace.whole_file import write_whole

log = structlog.get_logger("headrace.supervisor")


def known_tenants_file(settings: Settings) -> Path:
    return settings.run_dir / "known-tenants.json"


class OverlaySource:
    """Reads the overlay for the supervisor. Counterpart: `key_source.KeySource`, which has made the schema before.

    Concurrency: one caller at a time, from any thread.
    """

    def __init__(self, store: EntryStore, settings: Settings) -> None:
        self._store = store
        self._file = known_tenants_file(settings)
        self._version: int | None = None
        self._overlay: TenancyOverlay | None = None

    def read(self) -> TenancyOverlay:
        """Return the overlay as far as it can be known; never raises for a database that is away."""
        try:
            version = self._store.read_version()
            if version != self._version or self._overlay is None:
                self._overlay = self._store.read()
                self._version = version
                self._remember(self._overlay)
        except DatabaseError as error:
            if self._overlay is None:
                self._overlay = self._find_known()
                log.warning("tenants cannot be read; those known from before are used", reason=str(error))
            self._version = None
        return self._overlay

    def _remember(self, overlay: TenancyOverlay) -> None:
        try:
            write_whole(self._file, msgspec.json.encode(overlay))
        except OSError as error:
            log.warning("known tenants cannot be kept for a restart", reason=str(error))

    def _find_known(self) -> TenancyOverlay:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=TenancyOverlay)
        except (*UNDECODABLE, OSError):
            return NOTHING
