"""Files and batches as operators see them, read beside the running batch process: never a content, and nothing changed.

Counterpart: `store.py`, whose file this reads.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec

from headrace.batch.objects import OPEN, StoredBatch, StoredFile

READ_ROWS = 1000
"""Most rows of one answer."""
_BUSY_S = 2.0
_files = msgspec.json.Decoder(StoredFile)
_batches = msgspec.json.Decoder(StoredBatch)


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """One batch. Times are UTC epoch seconds."""

    batch_id: str
    tenant: str
    status: str
    """BatchStatus value."""
    endpoint: str
    input_file_id: str
    lines: int
    """0 until its input was validated."""
    completed: int
    failed: int
    """Both as of its last change of status: while it runs, its caller's own `GET /v1/batches/ID` knows more."""
    created_at: float
    expires_at: float
    """End of its window."""


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """One file; never its content, nor its name, which a caller chose."""

    file_id: str
    tenant: str
    purpose: str
    bytes: int
    created_at: float
    expires_at: float


class BatchStoreUnreadableError(Exception):
    """What is known of batches cannot be read now; the text says why."""


def read_batches(
    folder: Path, *, tenant: str | None = None, is_open: bool = False, limit: int = READ_ROWS
) -> tuple[BatchView, ...]:
    """The latest first, of one tenant or all; `is_open`: only those that are not over.

    Raises: BatchStoreUnreadableError.
    """
    found = (_batches.decode(row) for row in _rows(folder, "batches", tenant, READ_ROWS if is_open else limit, is_open))
    return tuple(_view_batch(batch) for batch in found)[:limit]


def read_files(folder: Path, *, tenant: str | None = None, limit: int = READ_ROWS) -> tuple[FileView, ...]:
    """The latest first, of one tenant or all. Raises: BatchStoreUnreadableError."""
    return tuple(_view_file(_files.decode(row)) for row in _rows(folder, "files", tenant, limit, False))


def _rows(folder: Path, table: str, tenant: str | None, limit: int, is_open: bool) -> Iterator[bytes]:
    path = folder / "store.db"
    if not path.exists():
        return
    states = ", ".join(f"'{status.value}'" for status in OPEN)
    wanted = [*(["tenant = :tenant"] if tenant is not None else []), *([f"status IN ({states})"] if is_open else [])]
    where = f" WHERE {' AND '.join(wanted)}" if wanted else ""
    query = f"SELECT object FROM {table}{where} ORDER BY number DESC LIMIT :limit"  # noqa: S608 (our own words)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_S)) as database:
            for (row,) in database.execute(query, {"tenant": tenant, "limit": min(limit, READ_ROWS)}):
                yield row
    except sqlite3.Error as error:
        raise BatchStoreUnreadableError(f"the list of batches cannot be read: {error}") from error


def _view_batch(batch: StoredBatch) -> BatchView:
    return BatchView(
        batch_id=batch.batch_id,
        tenant=batch.tenant,
        status=batch.status.value,
        endpoint=batch.endpoint,
        input_file_id=batch.input_file_id,
        lines=batch.counts.total,
        completed=batch.counts.completed,
        failed=batch.counts.failed,
        created_at=batch.created_at,
        expires_at=batch.expires_at,
    )


def _view_file(file: StoredFile) -> FileView:
    return FileView(
        file_id=file.file_id,
        tenant=file.tenant,
        purpose=file.purpose,
        bytes=file.bytes_,
        created_at=file.created_at,
        expires_at=file.expires_at,
    )
