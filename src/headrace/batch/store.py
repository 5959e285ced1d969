"""What is known of files and batches: one SQLite file in the batch folder; contents lie beside it as plain files.

Each row holds its object as JSON, and in columns what is searched by. Every change is on the disk when a call returns.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from headrace.batch.objects import OPEN, StoredBatch, StoredFile

SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, file_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL, expires_at REAL NOT NULL, object BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS files_of_tenant ON files (tenant, number);
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY AUTOINCREMENT, batch_id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, status TEXT NOT NULL,
    input_file_id TEXT NOT NULL, created_at REAL NOT NULL, object BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS batches_of_tenant ON batches (tenant, number);
CREATE INDEX IF NOT EXISTS open_batches ON batches (status);
"""
_OPEN = ", ".join(f"'{status.value}'" for status in OPEN)
_files = msgspec.json.Decoder(StoredFile)
_batches = msgspec.json.Decoder(StoredBatch)


class BatchStore:
    """Concurrency: one thread, one process (`process.py` holds the folder's lock)."""

    def __init__(self, folder: Path) -> None:
        self.contents = folder / "files"
        self.contents.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._database = sqlite3.connect(folder / "store.db", isolation_level=None)
        (folder / "store.db").chmod(0o600)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.executescript(SCHEMA)

    def close(self) -> None:
        self._database.close()

    def path_of(self, file_id: str) -> Path:
        """Where the content of a file is."""
        return self.contents / file_id

    # --- files

    def add_file(self, file: StoredFile) -> None:
        """Keep `file`, whose content is in place; once is enough."""
        row = (file.file_id, file.tenant, file.purpose, file.bytes_, file.expires_at, msgspec.json.encode(file))
        self._database.execute(
            "INSERT OR IGNORE INTO files (file_id, tenant, purpose, bytes, expires_at, object) VALUES (?,?,?,?,?,?)",
            row,
        )

    def find_file(self, tenant: str, file_id: str) -> StoredFile | None:
        """The tenant's file of this id."""
        row = self._one("SELECT object FROM files WHERE tenant = ? AND file_id = ?", (tenant, file_id))
        return _files.decode(row[0]) if row else None

    def list_files(
        self, tenant: str, *, purpose: str | None, after: str | None, limit: int, is_ascending: bool
    ) -> list[StoredFile]:
        """A page of the tenant's files, by creation."""
        order, sign = ("ASC", ">") if is_ascending else ("DESC", "<")
        query, values = "SELECT object FROM files WHERE tenant = ?", [tenant]
        if purpose is not None:
            query, values = query + " AND purpose = ?", [*values, purpose]
        if after is not None:
            query += f" AND number {sign} (SELECT number FROM files WHERE tenant = ? AND file_id = ?)"  # noqa: S608
            values += [tenant, after]
        query += f" ORDER BY number {order} LIMIT ?"
        return [_files.decode(row[0]) for row in self._database.execute(query, (*values, limit))]

    def stored_bytes(self, tenant: str) -> int:
        """Bytes of all the tenant's files."""
        row = self._one("SELECT coalesce(sum(bytes), 0) FROM files WHERE tenant = ?", (tenant,))
        return int(row[0]) if row else 0

    def delete_file(self, file_id: str) -> None:
        """Forget the file; its content goes after it."""
        self._database.execute("DELETE FROM files WHERE file_id = ?", (file_id,))
        with suppress(FileNotFoundError):
            self.path_of(file_id).unlink()

    # --- batches

    def put_batch(self, batch: StoredBatch, files: Iterable[StoredFile] = ()) -> None:
        """Keep `batch` as it is now, and with it the files it has brought forth, in one step."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._database.execute(
                "INSERT INTO batches (batch_id, tenant, status, input_file_id, created_at, object) "
                "VALUES (?,?,?,?,?,?) "
                "ON CONFLICT (batch_id) DO UPDATE SET status = excluded.status, object = excluded.object",
                (
                    batch.batch_id,
                    batch.tenant,
                    batch.status.value,
                    batch.input_file_id,
                    batch.created_at,
                    msgspec.json.encode(batch),
                ),
            )
            for file in files:
                self.add_file(file)
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def find_batch(self, tenant: str, batch_id: str) -> StoredBatch | None:
        """The tenant's batch of this id."""
        row = self._one("SELECT object FROM batches WHERE tenant = ? AND batch_id = ?", (tenant, batch_id))
        return _batches.decode(row[0]) if row else None

    def list_batches(self, tenant: str, *, after: str | None, limit: int) -> list[StoredBatch]:
        """A page of the tenant's batches, the latest first."""
        query, values = "SELECT object FROM batches WHERE tenant = ?", [tenant]
        if after is not None:
            query += " AND number < (SELECT number FROM batches WHERE tenant = ? AND batch_id = ?)"
            values += [tenant, after]
        rows = self._database.execute(query + " ORDER BY number DESC LIMIT ?", (*values, limit))
        return [_batches.decode(row[0]) for row in rows]

    def list_open(self, tenant: str | None = None) -> list[StoredBatch]:
        """Batches that are not over, of one tenant or all."""
        query = f"SELECT object FROM batches WHERE status IN ({_OPEN})"  # noqa: S608 (our own words)
        if tenant is None:
            rows = self._database.execute(query)
        else:
            rows = self._database.execute(query + " AND tenant = ?", (tenant,))
        return [_batches.decode(row[0]) for row in rows]

    # --- retention

    def delete_old(self, now_at: float, batches_before_at: float) -> int:
        """Forget files that have expired and old batches that are over; what an open batch reads or writes stays."""
        in_use = {name for batch in self.list_open() for name in (batch.input_file_id,)}
        rows = self._database.execute("SELECT file_id FROM files WHERE expires_at < ?", (now_at,)).fetchall()
        old = [name for (name,) in rows if name not in in_use]
        for name in old:
            self.delete_file(name)
        self._database.execute(
            f"DELETE FROM batches WHERE status NOT IN ({_OPEN}) AND created_at < ?",  # noqa: S608 (our own words)
            (batches_before_at,),
        )
        return len(old)

    def delete_strays(self) -> int:
        """Delete contents that belong to nothing: uploads and results that a crash has left. Call at the start."""
        known = {name for (name,) in self._database.execute("SELECT file_id FROM files")}
        for batch in self.list_open():
            known |= {batch.output_file_id, batch.error_file_id}
        strays = [path for path in self.contents.iterdir() if path.name not in known]
        for path in strays:
            path.unlink()
        return len(strays)

    def _one(self, query: str, values: tuple[str, ...]) -> tuple[bytes] | None:
        return self._database.execute(query, values).fetchone()
