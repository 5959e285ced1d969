"""Ingestion into SQLite with the standard library: 3.1 to 3.7 microseconds of CPU a row, decoding included.

Measured on 200,000 rows: less where requests are alike (one model, one pool), more where little of them is.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from headrace.database.connect import SQLITE_BUSY_S, SQLITE_PRAGMAS
from headrace.ledger.ingest.contract import Batch, BatchRefusedError, DatabaseUnavailableError, Row, Value, list_losses
from headrace.ledger.record import RECORD_FIELDS
from headrace.ledger.segment import writer_of
from headrace.ledger.turns import TURN_ROWS, in_turns

_GROUP = 32
"""Rows in one statement. Source: measured on 300,000 rows: 1 row 4.2, 10 rows 3.6, 40 rows 3.4 microseconds a row."""

_PIECE = 32 * _GROUP
"""Rows looked through together for columns that are alike in all of them; small enough to stay in the CPU's cache."""

_COMPARED = 8 * _GROUP
"""Fewest rows worth looking through: each new set of columns that are alike is a statement to prepare, 0.7 ms."""

_TEMPLATE = f"INSERT INTO requests ({','.join(RECORD_FIELDS)}) VALUES {{rows}} ON CONFLICT (uid) DO NOTHING"  # noqa: S608
_INSERT_ONE = _TEMPLATE.format(rows="(" + ",".join("?" * len(RECORD_FIELDS)) + ")")
_STREAM = RECORD_FIELDS.index("stream")
_INSERT_LOSS = (
    "INSERT INTO journal_losses (source, kind, amount, noted_at) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (source, kind) DO UPDATE SET noted_at = excluded.noted_at, amount = CASE excluded.kind "
    "WHEN 'dropped' THEN excluded.amount ELSE journal_losses.amount + excluded.amount END"
)
_SET_POSITION = (
    "INSERT INTO journal_positions (segment, position) VALUES (?, ?) "
    "ON CONFLICT (segment) DO UPDATE SET position = excluded.position"
)

_DELETE_OLD = (
    "DELETE FROM requests WHERE uid IN (SELECT uid FROM requests WHERE received_at < ? ORDER BY received_at LIMIT ?)"
)


# sqlite3 asks every value that is no exact int, float or str how it is to be stored, and for each two look-ups fail:
# a sixth of a row's cost. Registered here, the answer is found at once: None stays None, a bool is an int.
_NOTHING: dict[None, None] = {}
sqlite3.register_adapter(type(None), _NOTHING.get)
sqlite3.register_adapter(bool, int)


class SqliteIngest:
    """Fulfils `contract.Ingest`."""

    def __init__(self, path: Path) -> None:
        """Raises: DatabaseUnavailableError."""
        try:
            self._connection = sqlite3.connect(path, timeout=SQLITE_BUSY_S, isolation_level=None)
            for pragma in SQLITE_PRAGMAS:
                self._connection.execute(pragma)
        except sqlite3.Error as error:
            raise DatabaseUnavailableError(str(error)) from error

    def read_positions(self) -> dict[str, int]:
        try:
            return dict(self._connection.execute("SELECT segment, position FROM journal_positions").fetchall())
        except sqlite3.Error as error:
            raise DatabaseUnavailableError(str(error)) from error

    def write(self, batch: Batch) -> int:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            written = _insert(cursor, batch.rows)
            source = writer_of(batch.segment)
            for loss in list_losses(batch, source):
                cursor.execute(_INSERT_LOSS, loss)
            cursor.execute(_SET_POSITION, (batch.segment, batch.position))
            cursor.execute("COMMIT")
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError) as error:
            self._roll_back()
            raise BatchRefusedError(str(error)) from error
        except sqlite3.Error as error:
            self._roll_back()
            raise DatabaseUnavailableError(str(error)) from error
        return written

    def make_durable(self) -> bool:
        try:
            busy, in_log, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            raise DatabaseUnavailableError(str(error)) from error
        return not busy and in_log == copied

    def forget(self, segments: list[str]) -> None:
        try:
            self._connection.executemany(
                "DELETE FROM journal_positions WHERE segment = ?", [(name,) for name in segments]
            )
        except sqlite3.Error as error:
            raise DatabaseUnavailableError(str(error)) from error

    def delete_before(self, received_at: float, limit: int) -> int:
        try:
            return self._connection.execute(_DELETE_OLD, (received_at, limit)).rowcount
        except sqlite3.Error as error:
            raise DatabaseUnavailableError(str(error)) from error

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")


def _insert(cursor: sqlite3.Cursor, rows: list[Row]) -> int:
    whole = len(rows) - len(rows) % _GROUP
    written = sum(_insert_piece(cursor, rows[at : min(at + _PIECE, whole)]) for at in range(0, whole, _PIECE))
    if whole < len(rows):
        cursor.executemany(_INSERT_ONE, rows[whole:])
        written += cursor.rowcount
    return written


def _insert_piece(cursor: sqlite3.Cursor, rows: list[Row]) -> int:
    """Insert a multiple of _GROUP rows. Handing over a value costs more than storing it, so one that a column has in
    all rows (no code, one model, no price) is handed over once a statement."""
    columns: list[Sequence[Value]] = list(zip(*rows, strict=True))
    columns[_STREAM] = [1 if value is True else 0 if value is False else value for value in columns[_STREAM]]
    alike: list[int] = []
    values: list[Value] = []
    varying: list[Sequence[Value]] = []
    is_compared = len(rows) >= _COMPARED
    for number, column in enumerate(columns):
        value = column[0]
        if is_compared and value == column[-1] and column.count(value) == len(rows):
            alike.append(number)
            values.append(value)
        else:
            varying.append(column)
    cursor.executemany(_group_statement(tuple(alike)), _groups(values, varying, len(rows)))
    return cursor.rowcount


def _groups(alike: list[Value], varying: list[Sequence[Value]], count: int) -> Iterator[list[Value]]:
    """The parameters of one statement after the other; each is executed before the next is made."""
    for at in in_turns(range(0, count, _GROUP), TURN_ROWS // _GROUP):
        group = alike.copy()
        for column in varying:
            group += column[at : at + _GROUP]
        yield group


@lru_cache(maxsize=64)
def _group_statement(alike: tuple[int, ...]) -> str:
    """INSERT of _GROUP rows; its parameters are the values of the columns `alike`, then column by column the others."""
    width = len(RECORD_FIELDS)
    varying = [column for column in range(width) if column not in alike]
    firsts = {column: len(alike) + 1 + _GROUP * number for number, column in enumerate(varying)}
    shared = {column: number for number, column in enumerate(alike, 1)}
    rows = (
        ",".join(f"?{shared.get(column) or firsts[column] + row}" for column in range(width)) for row in range(_GROUP)
    )
    return _TEMPLATE.format(rows=",".join(f"({row})" for row in rows))
