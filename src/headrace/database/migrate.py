"""Bringing a database to the schema of this version: at every start, safe when several processes start at once."""

import contextlib
import fcntl
from collections.abc import Generator
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from headrace.database.connect import Database, open_database
from headrace.database.url import DatabaseError, DatabaseUrl

SCHEMA_VERSION = "0005"
"""The newest file of `migrations/versions`."""

_LOCK_NUMBER = 0x68656164
"""PostgreSQL advisory lock held while migrating: "head" in ASCII."""


def migrate(url: str | DatabaseUrl) -> bool:
    """Bring the schema up to SCHEMA_VERSION; True where something was done.

    Raises: DatabaseError: it cannot be reached, or a newer headrace has been using it.
    """
    database = open_database(url)
    try:
        with database.reading() as connection:
            if _read_version(connection) == SCHEMA_VERSION:
                return False
        with _holding_file_lock(database.url.sqlite_path), database.writing() as connection:
            if not database.url.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
            if _read_version(connection) == SCHEMA_VERSION:
                return False
            _upgrade(database, connection)
            return True
    finally:
        database.close()


def _read_version(connection: Connection) -> str | None:
    """The schema's version; None in an empty database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(database: Database, connection: Connection) -> None:
    from alembic import command  # slow to import, and needed at the first start of a version only
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        raise DatabaseError(
            f"database {database.url.shown}: its schema is version {_read_version(connection)}, which this headrace "
            f"({SCHEMA_VERSION}) does not know",
            hint="Run the headrace that made it, or restore a back-up (docs/backup.md).",
        ) from error


@contextlib.contextmanager
def _holding_file_lock(path: Path | None) -> Generator[None, None, None]:
    if path is None:
        yield
        return
    with open(path.with_name(path.name + ".migrating"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
