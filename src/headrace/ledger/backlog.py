"""The projection's report to the supervisor: a small file, replaced whole about once a second."""

import contextlib
from pathlib import Path

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.whole_file import write_whole


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """How far the database is behind the journal."""

    pid: int
    """The projection's process."""
    at: float
    """When this was written, UTC epoch seconds."""
    waiting_records: int
    """Records in the journal that are not in the database."""
    waiting_bytes: int
    """What they take in the journal."""
    lag_s: float | None
    """Upper bound for the age of the oldest waiting record (time since the database last had everything); None: nothing
    waits."""
    rows: int
    """Rows written since the projection's start."""
    error: str | None
    """Why the database cannot be written at the moment."""


def write_backlog(path: Path, backlog: Backlog) -> None:
    """Replace the file at `path`; a full disk leaves the old one."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(path, msgspec.json.encode(backlog))


def find_backlog(path: Path) -> Backlog | None:
    """The newest report; None where there is none yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Backlog)
    except (*UNDECODABLE, OSError):
        return None
