"""Reads the ends of log files and follows them, over rotation too."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 1 << 20
"""How far back from a file's end its last lines are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of one source; `headrace logs --json` prints it."""

    source: str
    line: str


class LogTail:
    """One file that is appended to, and replaced or cut when it is rotated."""

    def __init__(self, source: str, path: Path) -> None:
        self.source, self._path = source, path
        self._inode = -1
        self._offset = 0
        self._rest = b""

    def last_lines(self, count: int) -> list[LogLine]:
        """Return the newest `count` lines, and go on from there with `fresh_lines`."""
        try:
            with self._path.open("rb") as stream:
                found = os.fstat(stream.fileno())
                self._inode, self._offset = found.st_ino, found.st_size
                stream.seek(max(0, found.st_size - TAIL_BYTES))
                whole, mark, self._rest = stream.read().rpartition(b"\n")
        except OSError:
            return []
        lines = whole.split(b"\n") if mark else []
        return [self._line(line) for line in lines[-count:]] if count else []

    def fresh_lines(self) -> Iterator[LogLine]:
        """Yield what has been written since, first the end of a file that was rotated away."""
        try:
            now = self._path.stat()
        except OSError:
            return
        if now.st_ino != self._inode:
            yield from self._read(self._path.with_name(self._path.name + ".1"), self._inode)
            self._inode, self._offset, self._rest = now.st_ino, 0, b""
        elif now.st_size < self._offset:  # Cut, after it was copied.
            self._offset, self._rest = 0, b""
        yield from self._read(self._path, now.st_ino)

    def _read(self, path: Path, inode: int) -> Iterator[LogLine]:
        try:
            with path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_ino != inode:
                    return
                stream.seek(self._offset)
                chunk = stream.read()
        except OSError:
            return
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield self._line(line)

    def _line(self, line: bytes) -> LogLine:
        return LogLine(source=self.source, line=line.decode("utf-8", "replace"))


def find_logs(log_dir: Path) -> dict[str, Path]:
    """Return every source by name: supervisor, gateway, requests, engine-<pool>-<n>, ..."""
    return {
        path.stem: path
        for pattern in ("*.log", "*.jsonl")
        for path in sorted(log_dir.glob(pattern))
        if not path.name.startswith(".")
    }
