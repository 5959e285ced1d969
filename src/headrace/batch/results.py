"""The answers of one batch: two append-only files, the output and the errors, that are their own journal.

A record counts once it is on the disk; what a crash has left of a record is cut off when the files are opened again,
and its line is sent again. So each line is in one of the two, once.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headrace.batch.objects import Counts
from headrace.domain.undecodable import UNDECODABLE
from headrace.whole_file import sync_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What has become of the line of this index."""

    index: int
    custom_id: str
    is_error: bool
    response: Mapping[str, Any] | None = None
    """`status_code`, `request_id`, `body`."""
    error: Mapping[str, str] | None = None
    """`code` and `message`, where the line has no response."""


@dataclass(slots=True, eq=False)
class _Group:
    """Results that reach the disk together."""

    results: list[Result] = field(default_factory=list[Result])
    is_written: bool = False
    error: OSError | None = None


class _Record(msgspec.Struct):
    id: str


class BatchResults:
    """Concurrency: `append` from many tasks of one loop; the disk is written by one thread at a time."""

    def __init__(self, output: Path, errors: Path, batch_id: str, total: int) -> None:
        """Open the files and find out which lines are answered. Blocking. Raises: OSError."""
        self._name = batch_id.replace("batch_", "batch_req_", 1)
        self._answered = bytearray(total)
        self._paths = (output, errors)
        self._counts = [0, 0]
        self._sizes = [0, 0]
        self._descriptors: list[int] = []
        for kind, path in enumerate(self._paths):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._descriptors.append(descriptor)
            self._recover(kind, path)
        sync_folder(output.parent)
        self._group = _Group()
        self._lock = asyncio.Lock()

    @property
    def counts(self) -> Counts:
        return Counts(total=len(self._answered), completed=self._counts[0], failed=self._counts[1])

    @property
    def output_bytes(self) -> int:
        return self._sizes[0]

    @property
    def error_bytes(self) -> int:
        return self._sizes[1]

    def is_answered(self, index: int) -> bool:
        return bool(self._answered[index])

    async def append(self, result: Result) -> None:
        """Return once the result is on the disk. Raises: OSError; then it is not there, nor is a part of it."""
        group = self._group
        group.results.append(result)
        await asyncio.shield(self._flush(group))

    async def _flush(self, group: _Group) -> None:
        async with self._lock:
            if group.error is not None:
                raise group.error
            if group.is_written:
                return
            self._group = _Group()
            try:
                await asyncio.to_thread(self.write, group.results)
            except OSError as error:
                group.error = error
                raise
            group.is_written = True

    async def write_alone(self, work: Callable[[], None]) -> None:
        """Run blocking `work`, which calls `write`, in a thread while nobody else writes; goes on when cancelled."""

        async def alone() -> None:
            async with self._lock:
                await asyncio.to_thread(work)

        await asyncio.shield(alone())

    async def settle(self) -> None:
        """Return once no write is under way."""
        async with self._lock:
            pass

    def write(self, results: Sequence[Result]) -> None:
        """Append and sync. Blocking. Raises: OSError; then the files are as before."""
        fresh = [result for result in results if not self._answered[result.index]]
        parts = [
            b"".join(self._render(result) for result in fresh if result.is_error is is_error)
            for is_error in (False, True)
        ]
        try:
            for kind, part in enumerate(parts):
                if part:
                    self._write_at(kind, part)
        except OSError:
            for kind, size in enumerate(self._sizes):
                os.ftruncate(self._descriptors[kind], size)
            raise
        for kind, part in enumerate(parts):
            self._sizes[kind] += len(part)
        for result in fresh:
            self._answered[result.index] = 1
            self._counts[result.is_error] += 1

    def close(self) -> None:
        """Close the files; one that holds nothing goes."""
        for descriptor, path, size in zip(self._descriptors, self._paths, self._sizes, strict=True):
            os.close(descriptor)
            if size == 0:
                path.unlink(missing_ok=True)
        self._descriptors = []

    def _write_at(self, kind: int, part: bytes) -> None:
        position, descriptor = self._sizes[kind], self._descriptors[kind]
        view = memoryview(part)
        while view:
            written = os.pwrite(descriptor, view, position)
            position += written
            view = view[written:]
        os.fsync(descriptor)

    def _render(self, result: Result) -> bytes:
        record = {
            "id": f"{self._name}_{result.index}",
            "custom_id": result.custom_id,
            "response": result.response,
            "error": result.error,
        }
        return msgspec.json.encode(record) + b"\n"

    def _recover(self, kind: int, path: Path) -> None:
        good_bytes = 0
        decoder = msgspec.json.Decoder(_Record)
        with path.open("rb") as stream:
            for text in stream:
                try:
                    index = int(decoder.decode(text).id.rpartition("_")[2])
                except (*UNDECODABLE, ValueError):
                    break
                if not text.endswith(b"\n") or index >= len(self._answered):
                    break
                good_bytes += len(text)
                if not self._answered[index]:
                    self._answered[index] = 1
                    self._counts[kind] += 1
        os.ftruncate(self._descriptors[kind], good_bytes)
        self._sizes[kind] = good_bytes
