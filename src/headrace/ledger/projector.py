"""The projection: journal files into the table `requests`, replayed idempotently, never on the hot path.

Its counterpart is `journal.py`. Runs in its own process (`__main__.py`). A batch's rows and its file's new position are
one transaction; a file goes once its writer is done, every byte is projected, and the database has it on disk.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path

from headrace.domain.clock import Clock
from headrace.domain.undecodable import UNDECODABLE
from headrace.ledger.backlog import Backlog
from headrace.ledger.frames import FrameKind, Scan, decode_loss, scan_frames
from headrace.ledger.ingest.contract import Batch, BatchRefusedError, DatabaseUnavailableError, Ingest, Row
from headrace.ledger.record import decode_rows
from headrace.ledger.segment import is_sealed, list_segments, measure_waiting
from headrace.ledger.turns import DECODED_ROWS, end_turn

CHUNK_BYTES = 1 << 18
"""Read at a time: about 1,200 records, one transaction. A frame that does not fit is read with twice as much."""


PASS_BATCHES = 256
"""Most batches in one pass, so that a long backlog is reported and a stop obeyed between passes."""


EXPIRY_ROWS = 2000
"""Most rows deleted in one pass, so that a delete holds nobody up; two passes a second. Chosen."""
DAY_S = 86400.0


class Progress(Enum):
    """How a pass ended."""

    CAUGHT_UP = "caught-up"
    """Everything that the journal held when the pass began is in the database."""
    MORE = "more"
    BLOCKED = "blocked"
    """The database did not take a batch."""


class Projector:
    """Brings the database up to the journal, one pass at a time.

    Concurrency: one thread; one projector per journal (`__main__.py` holds a lock).
    """

    def __init__(
        self,
        directory: Path,
        open_ingest: Callable[[], Ingest],
        clock: Clock,
        *,
        retention_days: int | None = None,
    ) -> None:
        """`retention_days`: rows of requests older than this are deleted; None keeps them for ever."""
        self._directory = directory
        self._retention_days = retention_days
        self._open_ingest = open_ingest
        self._clock = clock
        self._ingest: Ingest | None = None
        self._positions: dict[str, int] = {}
        self._caught_up_mono_s = clock.mono_s()
        self._batches_left = 0
        self._rows = 0
        self._error: str | None = None

    def __repr__(self) -> str:
        return f"Projector({self._directory}, {self._rows} rows, error={self._error!r})"

    def project(self) -> Progress:
        """One pass over all files, of PASS_BATCHES at most."""
        began_mono_s = self._clock.mono_s()
        self._batches_left = PASS_BATCHES
        try:
            ingest = self._connect()
            finished = [path for path in list_segments(self._directory) if self._project_segment(ingest, path)]
            self._delete(ingest, finished)
            if self._batches_left > 0:
                self._expire(ingest)
        except DatabaseUnavailableError as error:
            self._error = str(error)
            self.close()
            return Progress.BLOCKED
        self._error = None
        if self._batches_left <= 0:
            return Progress.MORE
        self._caught_up_mono_s = began_mono_s
        return Progress.CAUGHT_UP

    def measure_backlog(self) -> Backlog:
        """How far the database is behind now."""
        waiting = [measure_waiting(path, self._positions.get(path.name, 0)) for path in list_segments(self._directory)]
        waiting_bytes = sum(one.byte_count for one in waiting)
        return Backlog(
            pid=os.getpid(),
            at=self._clock.wall_at().timestamp(),
            waiting_records=sum(one.records for one in waiting),
            waiting_bytes=waiting_bytes,
            lag_s=self._clock.mono_s() - self._caught_up_mono_s if waiting_bytes else None,
            rows=self._rows,
            error=self._error,
        )

    def close(self) -> None:
        """Give up the connection; the next pass opens it anew and reads the positions again."""
        if self._ingest is not None:
            self._ingest.close()
            self._ingest = None

    def _connect(self) -> Ingest:
        if self._ingest is None:
            self._ingest = self._open_ingest()
            self._positions = self._ingest.read_positions()
        return self._ingest

    def _project_segment(self, ingest: Ingest, path: Path) -> bool:
        """Project what `path` holds now; True where the file is complete and done with."""
        is_last = is_sealed(path)  # asked before reading: what a dead or closed writer wrote is then all there
        chunk_bytes = CHUNK_BYTES
        with path.open("rb") as file:
            while self._batches_left > 0:
                position = self._positions.get(path.name, 0)
                file.seek(position)
                buffer = file.read(chunk_bytes)
                is_whole = len(buffer) < chunk_bytes
                scan = scan_frames(buffer, is_end=is_last and is_whole)
                if scan.consumed:
                    self._write(ingest, path.name, position, scan)
                    chunk_bytes = CHUNK_BYTES
                elif is_whole:
                    return is_last
                else:
                    chunk_bytes *= 2
        return False

    def _write(self, ingest: Ingest, segment: str, position: int, scan: Scan) -> None:
        self._batches_left -= 1
        rows: list[Row] = []
        dropped: int | None = None
        torn = scan.torn
        turn_began = 0
        for frame in scan.frames:
            if len(rows) - turn_began >= DECODED_ROWS:
                turn_began = len(rows)
                end_turn()
            try:
                if frame.kind is FrameKind.LOSS:
                    dropped = decode_loss(frame)
                else:
                    rows += decode_rows(frame.payload)
            except UNDECODABLE:
                torn += len(frame.payload)
        batch = Batch(
            segment=segment,
            position=position + scan.consumed,
            rows=rows,
            dropped=dropped,
            torn_bytes=torn,
            noted_at=self._clock.wall_at().timestamp(),
        )
        try:
            self._rows += ingest.write(batch)
        except BatchRefusedError:
            self._rows += self._write_singly(ingest, batch, position)
        self._positions[segment] = batch.position

    def _write_singly(self, ingest: Ingest, batch: Batch, position: int) -> int:
        """Write the rows that the database takes, and count the others."""
        written = refused = 0
        for row in batch.rows:
            try:
                written += ingest.write(Batch(segment=batch.segment, position=position, rows=[row]))
            except BatchRefusedError:
                refused += 1
        ingest.write(replace(batch, rows=[], refused=refused))
        return written

    def _expire(self, ingest: Ingest) -> None:
        """Delete some of the rows that are too old; what arrived comes first, so only once caught up."""
        if self._retention_days is not None:
            oldest_at = self._clock.wall_at().timestamp() - self._retention_days * DAY_S
            ingest.delete_before(oldest_at, EXPIRY_ROWS)

    def _delete(self, ingest: Ingest, finished: list[Path]) -> None:
        gone = [name for name in self._positions if not (self._directory / name).exists()]
        if finished and ingest.make_durable():
            for path in finished:
                path.unlink(missing_ok=True)
                gone.append(path.name)
        if gone:
            ingest.forget(gone)
            for name in gone:
                self._positions.pop(name, None)
