"""Journal against database: what waits, what was lost, and whether every projected record really is a row."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from sqlalchemy import func, select

from headrace.database.connect import Database
from headrace.database.tables import JOURNAL_LOSSES, JOURNAL_POSITIONS, REQUESTS
from headrace.ledger.frames import FrameKind, scan_frames
from headrace.ledger.record import RECORD_FIELDS, decode_rows
from headrace.ledger.segment import list_segments, measure_waiting

_RECEIVED_AT = RECORD_FIELDS.index("received_at")
_LOOKED_UP = 500
"""Uids in one query: well under every database's bound for parameters."""


class LedgerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify_ledger` found."""

    rows: int
    """Requests in the database."""
    segments: int
    """Journal files that exist."""
    waiting_records: int
    waiting_bytes: int
    checked_records: int
    """Records in those files that must be rows by now."""
    missing_records: int
    """Of these, how many are not rows: refused ones, or the database lost something."""
    dropped_records: int
    """Lost for ever: a full or slow disk, or journal_bytes reached."""
    torn_bytes: int
    """Bytes of broken frames: what a killed process was writing."""
    refused_records: int
    """Records that the database would not store."""
    is_complete: bool
    """Everything that is to be in the database by now is, but for what it refused."""


def verify_ledger(journal_dir: Path, database: Database, *, kept_since_at: float = 0.0) -> LedgerCheck:
    """Compare; may run while the projection does. Rows received before `kept_since_at` may have been deleted.

    Raises: DatabaseError.
    """
    with database.reading() as connection:  # positions first: what is projected meanwhile only adds rows
        positions = {row.segment: row.position for row in connection.execute(select(JOURNAL_POSITIONS))}
        losses = select(JOURNAL_LOSSES.c.kind, func.sum(JOURNAL_LOSSES.c.amount)).group_by(JOURNAL_LOSSES.c.kind)
        lost = {kind: int(amount) for kind, amount in connection.execute(losses)}
    segments = list_segments(journal_dir)
    waiting = [measure_waiting(path, positions.get(path.name, 0)) for path in segments]
    checked = missing = 0
    for path in segments:
        for uids in _chunked(_iter_uids(path, positions.get(path.name, 0), kept_since_at)):
            checked += len(uids)
            missing += len(uids) - _count_present(database, uids)
    with database.reading() as connection:
        rows = connection.execute(select(func.count()).select_from(REQUESTS)).scalar_one()
    refused = lost.get("refused", 0)
    return LedgerCheck(
        rows=rows,
        segments=len(segments),
        waiting_records=sum(one.records for one in waiting),
        waiting_bytes=sum(one.byte_count for one in waiting),
        checked_records=checked,
        missing_records=missing,
        dropped_records=lost.get("dropped", 0),
        torn_bytes=lost.get("torn", 0),
        refused_records=refused,
        is_complete=missing <= refused,
    )


def _iter_uids(path: Path, position: int, kept_since_at: float) -> Iterator[str]:
    try:
        buffer = path.read_bytes()[:position]
    except FileNotFoundError:
        return
    for frame in scan_frames(buffer, is_end=True).frames:
        if frame.kind is FrameKind.RECORDS:
            for row in decode_rows(frame.payload):
                received_at = row[_RECEIVED_AT]
                if isinstance(received_at, float | int) and received_at >= kept_since_at:
                    yield str(row[0])


def _count_present(database: Database, uids: Sequence[str]) -> int:
    with database.reading() as connection:
        query = select(func.count()).select_from(REQUESTS).where(REQUESTS.c.uid.in_(uids))
        return connection.execute(query).scalar_one()


def _chunked(uids: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(uids, _LOOKED_UP)):
        yield chunk
