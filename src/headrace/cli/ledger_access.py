"""What `keys`, `tenants` and `usage` work on: the declaration and its database, with or without a running instance."""

import contextlib
import os
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from headrace.cli.control_client import ControlClient
from headrace.cli.output import EXIT_USAGE, fail
from headrace.database.connect import Database, open_database
from headrace.database.migrate import migrate
from headrace.database.url import sqlite_url
from headrace.declaration.load import find_declaration, load_declaration
from headrace.declaration.model import Declaration
from headrace.domain.clock import Clock, SystemClock
from headrace.fleet.deploy.state_files import find_supervisor
from headrace.settings import Settings, load_settings
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.key_wish import KeyWishError

_NUDGE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAccess:
    """An opened database and what it belongs to."""

    settings: Settings
    declaration: Declaration
    database: Database
    keys: KeyStore
    clock: Clock

    def announce_key_change(self) -> bool:
        """Tell the running instance, so that the change is in force at once; False where none runs."""
        if find_supervisor(self.settings) is None:
            return False
        with ControlClient(self.settings, timeout_s=_NUDGE_S) as client:
            return client.try_announce_keys()


@contextlib.contextmanager
def open_access(config: Path | None) -> Generator[LedgerAccess, None, None]:
    """Open the database of `config`, else of the running instance's declaration, else of the one found here.

    Raises: OperatorError.
    """
    settings = load_settings()
    path = _declaration_path(config, settings)
    declaration = load_declaration(path, environ=os.environ).declaration
    url = declaration.ledger.database or sqlite_url(settings.database_path)
    migrate(url)
    database = open_database(url)
    clock = SystemClock()
    try:
        yield LedgerAccess(
            settings=settings,
            declaration=declaration,
            database=database,
            keys=KeyStore(database, clock),
            clock=clock,
        )
    finally:
        database.close()


@contextlib.contextmanager
def refusing_wrong_usage() -> Generator[None, None, None]:
    """Exit with 2 where an argument cannot be meant as it is."""
    try:
        yield
    except KeyWishError as error:
        fail(error.message, hint=error.hint, code=EXIT_USAGE)


def _declaration_path(config: Path | None, settings: Settings) -> Path | None:
    running = find_supervisor(settings) if config is None else None
    if running is not None:
        return Path(running.config_file) if running.config_file is not None else None
    return find_declaration(config, environ=os.environ)
