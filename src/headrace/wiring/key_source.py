"""The keys that count now, from the database; while it is away, those that were last read, even over a restart.

The copy in run/known-keys.json holds what the database holds: hashes, never a key.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from headrace.database.migrate import migrate
from headrace.database.url import DatabaseError
from headrace.domain.tenant import KeyRecord
from headrace.domain.undecodable import UNDECODABLE
from headrace.settings import Settings
from headrace.tenancy.key_store import KeyStore
from headrace.whole_file import write_whole

log = structlog.get_logger("headrace.supervisor")


def known_keys_file(settings: Settings) -> Path:
    return settings.run_dir / "known-keys.json"


class KeySource:
    """Reads the keys for the gateway.

    Concurrency: one caller at a time, from any thread.
    """

    def __init__(
        self, store: KeyStore, database_url: str, settings: Settings, make_first_keys: Callable[[], None]
    ) -> None:
        self._store, self._database_url = store, database_url
        self._file = known_keys_file(settings)
        self._make_first_keys = make_first_keys
        self._is_prepared = False
        self._version: int | None = None
        self._keys: tuple[KeyRecord, ...] | None = None

    def read(self) -> tuple[KeyRecord, ...]:
        """Return the keys that may be used, and those that could be lately.

        Raises: DatabaseError, where the database is away and no earlier keys are known.
        """
        try:
            self._refresh()
        except DatabaseError as error:
            if self._keys is None:
                self._keys = self._find_known()
                if self._keys is None:
                    raise
                log.warning("keys cannot be read; those known from before are used", reason=str(error))
            elif self._version is not None:
                self._version = None
                log.warning("keys cannot be read; the last known ones stay in force", reason=str(error))
        assert self._keys is not None
        return self._keys

    def _refresh(self) -> None:
        if not self._is_prepared:
            migrate(self._database_url)
            self._make_first_keys()
            self._is_prepared = True
        version = self._store.read_version()
        if version != self._version:
            self._keys = self._store.list_known_keys()
            self._version = version
            self._remember(self._keys)

    def _remember(self, keys: tuple[KeyRecord, ...]) -> None:
        try:
            write_whole(self._file, msgspec.json.encode(keys))
        except OSError as error:
            log.warning("known keys cannot be kept for a restart", reason=str(error))

    def _find_known(self) -> tuple[KeyRecord, ...] | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=tuple[KeyRecord, ...])
        except (*UNDECODABLE, OSError):
            return None
