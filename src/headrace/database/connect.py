"""Opening the database for schema and queries (SQLAlchemy). Ingestion uses the drivers directly (`ledger/ingest`)."""

import contextlib
import re
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from headrace.database.url import DatabaseError, DatabaseUrl, mask_password, parse_database_url
from headrace.extras import Extra, install_hint, is_installed, missing_text

SQLITE_BUSY_S = 5.0
"""Longest wait for another writer's lock on the SQLite file."""

CONNECT_S = 5
"""Longest wait for a PostgreSQL server to accept a connection."""


REMEDIES = (
    (
        r"Connection refused|No such file or directory|timeout expired|No route to host|unreachable",
        "Start the server, or correct ledger.database; its listen_addresses and firewalls must let this machine in.",
    ),
    (r"could not translate host name|failed to resolve host", "Correct the host in ledger.database, or its DNS."),
    (
        r"password authentication failed|no password supplied|no pg_hba.conf entry",
        "Correct user and password in ledger.database, or let them in by the server's pg_hba.conf.",
    ),
    (
        r"(database|role) \"[^\"]*\" does not exist",
        "Create it (createdb, createuser), or correct its name in ledger.database.",
    ),
)
"""Words of libpq and the server -> what to do. Source: messages of libpq and PostgreSQL 18."""

_WRITES = "headrace_writes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An opened database.

    Concurrency: safe to share between threads; each `reading` or `writing` has its own connection.
    """

    url: DatabaseUrl
    engine: Engine

    @contextlib.contextmanager
    def reading(self) -> Generator[Connection, None, None]:
        """A connection for queries.

        Raises: DatabaseError.
        """
        with self._translating(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Generator[Connection, None, None]:
        """A transaction: committed at the end, rolled back on any exception.

        Raises: DatabaseError.
        """
        with self._translating(), self.engine.execution_options(**{_WRITES: True}).begin() as connection:
            yield connection

    def close(self) -> None:
        """Close idle connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _translating(self) -> Generator[None, None, None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise database_error(self.url, error) from error


def open_database(url: str | DatabaseUrl) -> Database:
    """Prepare `url` for use; nothing is connected yet.

    Raises: DatabaseError for a URL that headrace cannot use.
    """
    parsed = url if isinstance(url, DatabaseUrl) else parse_database_url(url)
    try:
        engine = _sqlite_engine(parsed) if parsed.is_sqlite else _postgres_engine(parsed)
    except (ImportError, OSError) as error:
        raise database_error(parsed, error) from error
    return Database(url=parsed, engine=engine)


def _sqlite_engine(url: DatabaseUrl) -> Engine:
    if url.sqlite_path is not None:
        url.sqlite_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(url.text, poolclass=NullPool, connect_args={"timeout": SQLITE_BUSY_S}, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgres_engine(url: DatabaseUrl) -> Engine:
    return create_engine(
        url.text, pool_size=2, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_S}, hide_parameters=True
    )


def database_error(url: DatabaseUrl, error: Exception) -> DatabaseError:
    """Say in one line which database refused and why, without its password."""
    cause = error.__cause__ or error
    reason = mask_password(" ".join(str(cause).split())) or type(cause).__name__
    if isinstance(cause, ImportError):
        said = f"database {url.shown}: {reason}"
        missing = said if is_installed(Extra.POSTGRES) else missing_text(f"database {url.shown}", Extra.POSTGRES)
        return DatabaseError(missing, hint=install_hint(Extra.POSTGRES))
    return DatabaseError(f"database {url.shown}: {reason}", hint=_remedy(url, reason))


def _remedy(url: DatabaseUrl, reason: str) -> str | None:
    """What to look at first; None where the reason says enough."""
    if url.is_sqlite:
        return None
    return next((remedy for words, remedy in REMEDIES if re.search(words, reason)), None)


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, so that DDL is transactional, too
    for pragma in SQLITE_PRAGMAS:
        connection.execute(pragma)


def _begin_sqlite(connection: Connection) -> None:
    # a transaction that reads first and writes later could not wait for another writer's lock
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")


SQLITE_PRAGMAS = ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", "PRAGMA foreign_keys=ON")
"""WAL: readers never wait for the writer. NORMAL: a crash of the machine may undo the last transactions, which the
journal then replays (its files are deleted only after a checkpoint)."""
