"""A counter for each kind of thing that pollers watch: it grows with every change, in the change's own transaction."""

from enum import StrEnum

from sqlalchemy import Connection, select, update

from headrace.database.connect import Database
from headrace.database.tables import CHANGES


class Watched(StrEnum):
    """What is counted; values are stored."""

    KEYS = "keys"
    TENANCY = "tenancy"


def count_change(connection: Connection, watched: Watched) -> None:
    """Count a change within the caller's transaction; others that count the same wait for its end."""
    version = CHANGES.c.version + 1
    connection.execute(update(CHANGES).where(CHANGES.c.subject == watched.value).values(version=version))


def read_changes(database: Database, watched: Watched) -> int:
    """Read the counter: one cheap look-up for a poller. Raises: DatabaseError."""
    with database.reading() as connection:
        return connection.execute(select(CHANGES.c.version).where(CHANGES.c.subject == watched.value)).scalar_one()
