"""The journal's writer: append-only, the truth of the ledger. Its counterpart is `projector.py`."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from headrace.ledger.buffer import RecordBuffer
from headrace.ledger.frames import encode_frame, encode_loss
from headrace.ledger.segment import SegmentFile, total_bytes, writer_name

FRAME_RECORDS = 1024
"""Most records in one frame: bounds how long the writer's thread holds the GIL at a time (well under a millisecond)."""


class JournalWriter:
    """Takes encoded records from the event loop and writes them from the flusher's thread.

    A full or failing disk never raises into the request path: records wait in the bounded buffer, are tried again at
    each flush, and over the bound are dropped and counted; the count itself is journalled once the disk is back.
    Concurrency: `append` and the counters from the event loop; `flush` and `close` from the flusher (`flusher.py`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        worker: int,
        pid: int,
        started_at: float,
        buffer_records: int,
        segment_bytes: int,
        journal_bytes: int,
    ) -> None:
        self._directory = directory
        self._writer = writer_name(worker, pid=pid, started_ms=int(started_at * 1000))
        self._segment_bytes = min(segment_bytes, journal_bytes // 4)
        self._journal_bytes = journal_bytes
        self._buffer = RecordBuffer(buffer_records)
        self._segment: SegmentFile | None = None
        self._segments = 0
        self._noted_dropped = 0
        self._clean_mono_s = time.monotonic()
        self.append: Callable[[bytes], None] = self._buffer.append
        """Keep one `record.encode_record` result; never blocks, never raises."""
        self.error: str | None = None
        """Why the last flush failed; None when it did not."""

    def __repr__(self) -> str:
        return f"JournalWriter({self._writer}, {self.pending} pending, {self.dropped} dropped, error={self.error!r})"

    @property
    def pending(self) -> int:
        """Records that are not on disk."""
        return len(self._buffer)

    @property
    def dropped(self) -> int:
        """Records lost since the writer began: the disk was full, failed or too slow, or the journal at its bound."""
        return self._buffer.dropped

    @property
    def lag_s(self) -> float:
        """For how long something has been waiting for the disk; 0 when nothing is."""
        return time.monotonic() - self._clean_mono_s if len(self._buffer) else 0.0

    def on_half_full(self, wake: Callable[[], None]) -> None:
        """See `flusher.Sink`."""
        self._buffer.on_half_full(wake)

    def flush(self) -> bool:
        """Write what is pending now. Trouble is left in `error`, the records in the buffer."""
        waiting = len(self._buffer)
        if not waiting and self._noted_dropped == self._buffer.dropped:
            self._clean_mono_s = time.monotonic()
            return True
        self.error = None
        try:
            self._write_pending(waiting)
            self._write_loss()
        except OSError as error:
            self.error = f"{error.strerror or error} ({self._directory})"
            return False
        self._clean_mono_s = time.monotonic()
        return True

    def close(self) -> None:
        """Flush a last time and release the segment; what the disk still refuses is dropped and counted."""
        self.flush()
        self._buffer.drop(len(self._buffer))
        if self._segment is not None:
            with contextlib.suppress(OSError):
                self._segment.close()
            self._segment = None

    def _write_pending(self, waiting: int) -> None:
        held_bytes = total_bytes(self._directory)
        while waiting > 0:
            batch = self._buffer.peek(min(waiting, FRAME_RECORDS))
            frame = encode_frame(batch)
            waiting -= len(batch)
            if held_bytes + len(frame) > self._journal_bytes:
                self._buffer.drop(len(batch))
                self.error = f"journal_bytes ({self._journal_bytes}) reached: the database is too far behind"
                continue
            self._open_segment(len(frame)).write(frame)
            self._buffer.remove(len(batch))
            held_bytes += len(frame)
        if self._segment is not None:
            self._segment.sync()

    def _write_loss(self) -> None:
        dropped = self._buffer.dropped
        if dropped != self._noted_dropped:
            frame = encode_loss(dropped)
            self._open_segment(len(frame)).write(frame)
            self._noted_dropped = dropped

    def _open_segment(self, frame_bytes: int) -> SegmentFile:
        """The segment to write a frame to: the open one, or the next where that would grow over its size."""
        segment = self._segment
        if segment is not None and segment.size and segment.size + frame_bytes > self._segment_bytes:
            self._segment = None
            segment.close()
            segment = None
        if segment is None:
            segment = SegmentFile(self._directory, self._writer, self._segments)
            self._segments += 1
            self._segment = segment
        return segment
