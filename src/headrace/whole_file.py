"""Writing a file whole or not at all: a reader, or whoever comes after a crash, sees the old content or the new one.

And the lock by which one process at a time writes what many could.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from threading import get_ident


def write_whole(
    path: Path, content: bytes | str, *, mode: int = 0o600, is_durable: bool = False, keeps_other: bool = False
) -> None:
    """Put `content` at `path` in one step.

    `is_durable`: it is on the disk before this returns, even after a power cut. `keeps_other`: a file that is there
    already stays. What could not be written leaves nothing behind.

    Raises: OSError; FileExistsError with `keeps_other`.
    Concurrency: several processes and threads may write the same path; the last one's content stays.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            if is_durable:
                os.fsync(descriptor)
        if keeps_other:
            os.link(draft, path)
        else:
            draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    if is_durable:
        sync_folder(path.parent)


def check_room(folder: Path, size_bytes: int) -> None:
    """Find out by trying whether `folder` takes so much more; nothing of it stays. Raises: OSError."""
    probe = folder / f".room.{os.getpid()}-{get_ident()}"
    try:
        write_whole(probe, bytes(size_bytes), is_durable=True)
    finally:
        probe.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Hold the open file's lock until it is closed, also by the end of the process; False: another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
