"""The request log `logs/requests.jsonl`: lines from the event loop, written and rotated by the flusher's thread.

Several workers share the file: each appends whole lines with one write, and rotation is done under a lock file.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from headrace.ledger.buffer import RecordBuffer

WRITE_LINES = 1024
"""Most lines in one write; see `journal.FRAME_RECORDS`."""


class RotatingLines:
    """A log file of one line per `append`, rotated by size: `NAME`, `NAME.1` (younger) ... `NAME.<files>` (oldest).

    Trouble with the disk never raises: lines wait in the bounded buffer, and over it are dropped and counted.
    Concurrency: as `JournalWriter`; any number of processes may share the path.
    """

    def __init__(self, path: Path, *, log_bytes: int, log_files: int, buffer_lines: int = 100_000) -> None:
        self.log_bytes = log_bytes
        """May be changed while running, as `log_files`."""
        self.log_files = log_files
        self._path = path
        self._buffer = RecordBuffer(buffer_lines)
        self._fd: int | None = None
        self._rest = b""
        self.append: Callable[[bytes], None] = self._buffer.append
        """Keep one encoded line, without its newline; never blocks, never raises."""
        self.error: str | None = None
        """Why the last flush failed; None when it did not."""

    @property
    def dropped(self) -> int:
        """Lines lost since the start."""
        return self._buffer.dropped

    def on_half_full(self, wake: Callable[[], None]) -> None:
        """See `flusher.Sink`."""
        self._buffer.on_half_full(wake)

    def flush(self) -> bool:
        """Write what is pending now. Trouble is left in `error`, the lines in the buffer."""
        waiting = len(self._buffer)
        if not waiting and not self._rest:
            return True
        self.error = None
        try:
            fd = self._open()
            self._write_rest(fd)
            while waiting > 0:
                batch = self._buffer.peek(min(waiting, WRITE_LINES))
                waiting -= len(batch)
                self._rest = b"\n".join(batch) + b"\n"
                self._buffer.remove(len(batch))
                self._write_rest(fd)
            if os.fstat(fd).st_size >= self.log_bytes:
                self._rotate(fd)
        except OSError as error:
            self.error = f"{error.strerror or error} ({self._path})"
            return False
        return True

    def close(self) -> None:
        """Flush a last time; what the disk still refuses is dropped and counted."""
        self.flush()
        self._buffer.drop(len(self._buffer))
        self._close_file()

    def _open(self) -> int:
        """The file now at the path: opened anew where another process has rotated it."""
        if self._fd is not None and not self._is_current(self._fd):
            self._close_file()
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._fd

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(fd))
        except FileNotFoundError:
            return False

    def _write_rest(self, fd: int) -> None:
        while self._rest:
            self._rest = self._rest[os.write(fd, self._rest) :]

    def _rotate(self, fd: int) -> None:
        with open(self._path.with_name(self._path.name + ".lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._is_current(fd):
                return
            for number in range(self.log_files - 1, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._numbered(number).replace(self._numbered(number + 1))
            self._path.replace(self._numbered(1))
        self._close_file()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
