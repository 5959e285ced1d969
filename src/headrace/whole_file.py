"""Writing a file whole or not at all: a reader, or whoever comes after a crash, sees the old content or the new one."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(
    path: Path, content: bytes | str, *, mode: int = 0o600, is_durable: bool = False, keeps_other: bool = False
) -> None:
    """Put `content` at `path` in one step.

    `is_durable`: it is on the disk before this returns, even after a power cut. `keeps_other`: a file that is there
    already stays. What could not be written leaves nothing behind.

    Raises: OSError; FileExistsError with `keeps_other`.
    """
    folder = path.parent
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content.encode() if isinstance(content, str) else content)
            if is_durable:
                stream.flush()
                os.fsync(descriptor)
        if keeps_other:
            os.link(draft, path)
        else:
            os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    if is_durable:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
