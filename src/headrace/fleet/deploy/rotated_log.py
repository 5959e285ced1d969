"""A log file that is rotated by size, and remembers its last lines. Stdlib only: the warden imports it too.

A log must never stop what it logs: a write that fails (full disk) is dropped and counted.
"""

import os
from collections import deque
from pathlib import Path

LAST_LINES = 40
"""Lines kept for a verdict: llama.cpp prints about that many around a failed start (measured)."""
LINE_BYTES = 400
"""A kept line is cut here, so that a binary flood cannot fill the state file."""


class RotatedLog:
    """Append bytes to `path`; over `limit_bytes` it becomes `path.1`, and so on up to `keep_files`.

    Concurrency: one writer.
    """

    def __init__(self, path: Path, *, limit_bytes: int, keep_files: int) -> None:
        self._path, self._limit_bytes, self._keep_files = path, limit_bytes, keep_files
        self._lines: deque[bytes] = deque(maxlen=LAST_LINES)
        self._rest = b""
        self.dropped_bytes = 0
        self._fd = -1
        self._size_bytes = 0
        self._try_open()

    def write(self, chunk: bytes) -> None:
        """Append `chunk`; never raises."""
        self._remember(chunk)
        if self._size_bytes and self._size_bytes + len(chunk) > self._limit_bytes:
            self._rotate()
        if self._fd < 0:
            self._try_open()
        try:
            written = os.write(self._fd, chunk) if self._fd >= 0 else 0
        except OSError:
            written = 0
        self._size_bytes += written
        self.dropped_bytes += len(chunk) - written

    def last_lines(self) -> list[str]:
        """Return the newest lines, oldest first."""
        lines = [*self._lines, self._rest] if self._rest else list(self._lines)
        return [line[:LINE_BYTES].decode("utf-8", "replace") for line in lines[-LAST_LINES:]]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _remember(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._lines.extend(line[:LINE_BYTES] for line in lines)
        self._rest = rest[:LINE_BYTES]

    def _try_open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._size_bytes = os.fstat(self._fd).st_size
        except OSError:
            self._fd = -1

    def _rotate(self) -> None:
        self.close()
        try:
            for number in range(self._keep_files, 0, -1):
                older = self._path.with_name(f"{self._path.name}.{number}")
                newer = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
                if newer.exists():
                    newer.replace(older)
        except OSError:
            pass  # A log that cannot be rotated goes on growing rather than stop.
        self._size_bytes = 0
        self._try_open()
