"""What `keys`, `tenants`, `usage` and `audit` work on: declaration and database, with or without an instance."""

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
from headrace.declaration.load import Loaded, find_declaration, load_declaration
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import DeclarationError
from headrace.domain.admin import OWNER_OF_ALL, Channel, Principal
from headrace.domain.clock import Clock, SystemClock
from headrace.domain.ids import KeyId
from headrace.domain.operator_error import UnknownNameError
from headrace.fleet.deploy.state_files import find_supervisor
from headrace.settings import Settings, load_settings, user_name
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.governing import EntryWishError, Governor
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.key_wish import KeyWishError
from headrace.tenancy.overlay import EntryKind, projects_of

_NUDGE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerAccess:
    """An opened database and what it belongs to."""

    settings: Settings
    loaded: Loaded
    database: Database
    keys: KeyStore
    entries: EntryStore
    clock: Clock
    principal: Principal
    """Who types, for the audit log."""

    @property
    def declaration(self) -> Declaration:
        """The file, and what the API has added."""
        return self.governor.declaration()

    @property
    def governor(self) -> Governor:
        return Governor(loaded=self.loaded, entries=self.entries, keys=self.keys, clock=self.clock)

    def check_names(
        self, *, tenant: str | None = None, project: str | None = None, model: str | None = None, key: str | None = None
    ) -> None:
        """Of what is gone the past is still shown; where there is nothing of it, the name is a slip.

        Raises: UnknownNameError with the nearest name.
        """
        declaration = self.declaration
        if tenant is not None:
            self.governor.get_entry(EntryKind.TENANT, tenant)
        if project is not None:
            known = projects_of(declaration, tenant)
            if project not in known:
                raise UnknownNameError(f'there is no project "{project[:128]}"', hint=did_you_mean(project, known))
        if model is not None and model not in declaration.models:
            raise UnknownNameError(f'there is no model "{model[:128]}"', hint=did_you_mean(model, declaration.models))
        if key is not None:
            self.keys.get_key(KeyId(key))

    def announce_change(self) -> bool:
        """Tell the running instance, so that the change is in force at once; False where none runs."""
        if find_supervisor(self.settings) is None:
            return False
        with ControlClient(self.settings, timeout_s=_NUDGE_S) as client:
            return client.try_announce_callers()


@contextlib.contextmanager
def open_access(config: Path | None) -> Generator[LedgerAccess, None, None]:
    """Open the database of `config`, else of the running instance's declaration, else of the one found here.

    Raises: OperatorError.
    """
    settings = load_settings()
    path = _declaration_path(config, settings)
    loaded = load_declaration(path, environ=os.environ)
    url = loaded.declaration.ledger.database or sqlite_url(settings.database_path)
    migrate(url)
    database = open_database(url)
    clock = SystemClock()
    try:
        yield LedgerAccess(
            settings=settings,
            loaded=loaded,
            database=database,
            keys=KeyStore(database, clock),
            entries=EntryStore(database, clock),
            clock=clock,
            principal=Principal(subject=f"local:{user_name(os.getuid())}", grant=OWNER_OF_ALL, channel=Channel.LOCAL),
        )
    finally:
        database.close()


@contextlib.contextmanager
def refusing_wrong_usage() -> Generator[None, None, None]:
    """Exit with 2 where an argument cannot be meant as it is."""
    try:
        yield
    except (KeyWishError, EntryWishError) as error:
        fail(error.message, hint=error.hint, code=EXIT_USAGE)
    except DeclarationError as error:  # of a --set
        fail(error.problems[0].message, hint=error.problems[0].hint, code=EXIT_USAGE)


def _declaration_path(config: Path | None, settings: Settings) -> Path | None:
    running = find_supervisor(settings) if config is None else None
    if running is not None:
        return Path(running.config_file) if running.config_file is not None else None
    return find_declaration(config, environ=os.environ)
