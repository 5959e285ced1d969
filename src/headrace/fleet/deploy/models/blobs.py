"""The content-addressed cache: `blobs/sha256/<hex>`, written whole or not at all, one writer at a time.

Layout of the cache folder: `blobs/` finished files, `partial/` what can be resumed, `locks/`, `records/` small JSON.
"""

import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.fleet.deploy.models.failure import ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, Meter
from headrace.whole_file import sync_folder, try_lock, write_whole

COPY_BYTES = 1 << 20
"""Read and hash in pieces of so much."""

DISK_MARGIN_BYTES = 64 << 20
"""Left free on the disk beyond what is written."""

LOCK_POLL_S = 0.2
"""How often a waiting process tries the lock again."""


class BlobCache:
    """Files by their SHA-256.

    Concurrency: safe between threads and processes; locks are the kernel's (flock), so that a killed holder's lock is
    gone with it.
    """

    def __init__(self, cache_dir: Path) -> None:
        self.cache_dir = cache_dir

    def path_of(self, sha256: str) -> Path:
        return self.cache_dir / "blobs" / "sha256" / sha256

    def record_path(self, name: str) -> Path:
        return self.folder("records") / f"{name}.json"

    def partial_path(self, name: str) -> Path:
        return self.folder("partial") / name

    def folder(self, name: str) -> Path:
        folder = self.cache_dir / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelFetchError(
                f"cannot create the cache folder {folder}: {error.strerror}. Set HEADRACE_CACHE_DIR to a folder "
                "that can be written"
            ) from error
        return folder

    @contextmanager
    def lock(self, name: str, meter: Meter) -> Generator[None]:
        """Hold the lock `name`, waiting while another process has it."""
        path = self.folder("locks") / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            is_waiting = False
            while not try_lock(descriptor):
                if not is_waiting:
                    meter.enter(FetchPhase.WAITING, name, note="another process is fetching the same file")
                    is_waiting = True
                meter.pause(LOCK_POLL_S)
            yield
        finally:
            os.close(descriptor)

    def commit(self, written: Path, sha256: str) -> Path:
        """Make the complete file `written` the blob `sha256`, durably and in one step."""
        target = self.path_of(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        commit_file(written, target)
        return target


def commit_file(written: Path, target: Path) -> None:
    """Rename `written` to `target` so that after a power cut the target is whole or absent."""
    descriptor = os.open(written, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    written.replace(target)
    sync_folder(target.parent)


def write_record(path: Path, content: bytes) -> None:
    """Replace a small file in one step, durably: what it says of a blob must not be lost before the blob."""
    write_whole(path, content, mode=0o644, is_durable=True)


def hash_file(path: Path, meter: Meter) -> str:
    """Return the SHA-256 of a file as hex, reporting progress."""
    meter.enter(FetchPhase.VERIFYING, path.name, total_bytes=path.stat().st_size)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(COPY_BYTES):
            digest.update(piece)
            meter.add(len(piece))
    return digest.hexdigest()


def require_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Raises: ModelFetchError where the disk has too little room, before anything is written."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes + DISK_MARGIN_BYTES:
        raise ModelFetchError(
            f"not enough disk for {what}: {needed_bytes:,} bytes are needed (and {DISK_MARGIN_BYTES:,} to spare), "
            f"{folder} has {free_bytes:,} free. Free some, or set HEADRACE_CACHE_DIR to a larger disk"
        )


def remove_quietly(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
