"""Journal files: their names, their lock, and writing that leaves whole frames or nothing.

A writer holds an exclusive lock on its open file from before the file has its name until it is closed or the process
dies, so a reader that obtains the lock knows that the file will not grow any more.
"""

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from headrace.ledger.frames import HEAD_BYTES, find_head

SEGMENT_SUFFIX = ".journal"


class SegmentFile:
    """One open journal file of one writer.

    Concurrency: one thread.
    """

    def __init__(self, directory: Path, writer: str, number: int) -> None:
        """Raises: OSError (nothing is left behind)."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = directory / f"{writer}-{number:06d}{SEGMENT_SUFFIX}"
        unnamed = directory / f".{self.path.name}.opening"
        self._fd = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.size = 0
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self.path)
        except OSError:
            os.close(self._fd)
            with contextlib.suppress(OSError):
                unnamed.unlink()
            raise

    def write(self, frame: bytes) -> None:
        """Append `frame` whole; where that fails, take back what was written of it.

        Raises: OSError.
        """
        written = 0
        try:
            while written < len(frame):
                written += os.write(self._fd, frame[written:] if written else frame)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += written

    def sync(self) -> None:
        """Raises: OSError."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Give up the file and its lock; the reader may finish it.

        Raises: OSError, after the file is closed all the same.
        """
        try:
            os.fdatasync(self._fd)
        finally:
            os.close(self._fd)


def writer_name(worker: int, *, pid: int, started_ms: int) -> str:
    """Name of one writing process: unique, so that two generations of one worker never share a file."""
    return f"w{worker:03d}-{started_ms:012x}-{pid}"


def list_segments(directory: Path) -> list[Path]:
    """Journal files, each writer's in order. No folder is no files."""
    try:
        return sorted(path for path in directory.iterdir() if path.suffix == SEGMENT_SUFFIX)
    except FileNotFoundError:
        return []


def writer_of(segment: str) -> str:
    """The writer that a segment's file name says."""
    return segment.removesuffix(SEGMENT_SUFFIX).rpartition("-")[0]


def total_bytes(directory: Path) -> int:
    """Size of all journal files."""
    total = 0
    for path in list_segments(directory):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What of a segment is not projected."""

    records: int
    byte_count: int


def measure_waiting(path: Path, position: int) -> Waiting:
    """Count what lies behind `position`, reading frame heads only. A file that is gone holds nothing."""
    records, at = 0, position
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            while (head := find_head(os.pread(file.fileno(), HEAD_BYTES, at))) is not None and at + head.end <= size:
                records += head.records
                at += head.end
    except FileNotFoundError:
        return Waiting(records=0, byte_count=0)
    return Waiting(records=records, byte_count=max(0, size - position))


def is_sealed(path: Path) -> bool:
    """Whether the writer of `path` has closed it or is dead.

    Raises: FileNotFoundError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
