"""Ingestion into PostgreSQL with psycopg: COPY into a temporary table, then one INSERT that leaves out known uids.

Measured: 3.5 microseconds of CPU a row on our side, 13 of time (100,000 rows, server on the same two shared cores).
"""

import contextlib

import psycopg

from headrace.database.connect import CONNECT_S
from headrace.database.tables import REQUESTS
from headrace.database.url import DatabaseUrl
from headrace.ledger.ingest.contract import Batch, BatchRefusedError, DatabaseUnavailableError, list_losses
from headrace.ledger.record import RECORD_FIELDS
from headrace.ledger.segment import writer_of
from headrace.ledger.turns import TURN_ROWS, in_turns

_COLUMNS = ", ".join(REQUESTS.c[name].name for name in RECORD_FIELDS)
_STAGE = "CREATE TEMPORARY TABLE requests_stage (LIKE requests) ON COMMIT DELETE ROWS"
_COPY = f"COPY requests_stage ({_COLUMNS}) FROM STDIN".encode()
_MOVE = (
    f"INSERT INTO requests ({_COLUMNS}) SELECT {_COLUMNS} FROM requests_stage ON CONFLICT (uid) DO NOTHING".encode()  # noqa: S608
)
_INSERT_LOSS = (
    "INSERT INTO journal_losses (source, kind, amount, noted_at) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (source, kind) DO UPDATE SET noted_at = excluded.noted_at, amount = CASE excluded.kind "
    "WHEN 'dropped' THEN excluded.amount ELSE journal_losses.amount + excluded.amount END"
)
_SET_POSITION = (
    "INSERT INTO journal_positions (segment, position) VALUES (%s, %s) "
    "ON CONFLICT (segment) DO UPDATE SET position = excluded.position"
)

_DELETE_OLD = (
    "DELETE FROM requests WHERE uid IN (SELECT uid FROM requests WHERE received_at < %s ORDER BY received_at LIMIT %s)"
)


class PostgresIngest:
    """Fulfils `contract.Ingest`."""

    def __init__(self, url: DatabaseUrl) -> None:
        """Raises: DatabaseUnavailableError."""
        try:
            self._connection = psycopg.connect(url.libpq_uri, connect_timeout=CONNECT_S)
            with self._connection.transaction():
                self._connection.execute(_STAGE)
        except psycopg.Error as error:
            raise DatabaseUnavailableError(_one_line(error)) from error

    def read_positions(self) -> dict[str, int]:
        try:
            with self._connection.transaction():
                return dict(self._connection.execute("SELECT segment, position FROM journal_positions").fetchall())
        except psycopg.Error as error:
            raise DatabaseUnavailableError(_one_line(error)) from error

    def write(self, batch: Batch) -> int:
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                written = 0
                if batch.rows:
                    with cursor.copy(_COPY) as copy:
                        for row in in_turns(batch.rows, TURN_ROWS):
                            copy.write_row(row)
                    cursor.execute(_MOVE)
                    written = cursor.rowcount
                for loss in list_losses(batch, writer_of(batch.segment)):
                    cursor.execute(_INSERT_LOSS, loss)
                cursor.execute(_SET_POSITION, (batch.segment, batch.position))
                return written
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise BatchRefusedError(_one_line(error)) from error
        except psycopg.Error as error:
            raise DatabaseUnavailableError(_one_line(error)) from error

    def make_durable(self) -> bool:
        return True  # a commit is durable (synchronous_commit)

    def forget(self, segments: list[str]) -> None:
        try:
            with self._connection.transaction():
                self._connection.execute("DELETE FROM journal_positions WHERE segment = ANY(%s)", (segments,))
        except psycopg.Error as error:
            raise DatabaseUnavailableError(_one_line(error)) from error

    def delete_before(self, received_at: float, limit: int) -> int:
        try:
            with self._connection.transaction():
                return self._connection.execute(_DELETE_OLD, (received_at, limit)).rowcount
        except psycopg.Error as error:
            raise DatabaseUnavailableError(_one_line(error)) from error

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self._connection.close()


def _one_line(error: psycopg.Error) -> str:
    return " ".join(str(error).split()) or type(error).__name__
