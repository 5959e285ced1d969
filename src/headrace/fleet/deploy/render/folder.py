"""Rendered files in a folder: what would change there, and writing it without touching what is somebody else's.

A record in the folder says which files are ours and what they held, so that edits by hand are noticed.
"""

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from headrace.domain.operator_error import OperatorError
from headrace.domain.undecodable import UNDECODABLE
from headrace.fleet.deploy.render.core.model import RenderedFile
from headrace.whole_file import write_whole

RECORD = ".headrace-render.json"


class FileChange(StrEnum):
    """What becomes of one file."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    """Ours, as we wrote it, and no longer rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """One file of the folder."""

    path: str
    change: FileChange
    is_foreign: bool
    """It is there, and not as we wrote it: made or edited by somebody else."""
    before: str | None
    after: RenderedFile | None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, str]
    """SHA-256 of what was written, by path."""


def plan_folder(folder: Path, files: Sequence[RenderedFile]) -> list[PlannedFile]:
    """Compare `files` with what is in `folder`, which need not be there yet."""
    written = _read_record(folder).files
    planned = [_plan(folder, file, written) for file in files]
    rendered = {file.path for file in files}
    for path in sorted(set(written) - rendered):
        before = _read(folder / path)
        if before is not None:
            planned.append(
                PlannedFile(
                    path=path,
                    change=FileChange.REMOVED,
                    is_foreign=_digest(before) != written[path],
                    before=before,
                    after=None,
                )
            )
    return planned


def _plan(folder: Path, file: RenderedFile, written: dict[str, str]) -> PlannedFile:
    before = _read(folder / file.path)
    if before is None:
        change = FileChange.CREATED
    else:
        change = FileChange.UNCHANGED if before == file.text else FileChange.CHANGED
    is_foreign = before is not None and change is FileChange.CHANGED and written.get(file.path) != _digest(before)
    return PlannedFile(path=file.path, change=change, is_foreign=is_foreign, before=before, after=file)


def write_folder(folder: Path, planned: Sequence[PlannedFile], *, is_forced: bool) -> None:
    """Carry the plan out, each file whole.

    Raises: OperatorError where a file is somebody else's, unless `is_forced`; nothing is written then.
    """
    foreign = [one.path for one in planned if one.is_foreign]
    if foreign and not is_forced:
        raise OperatorError(
            f"not written: {', '.join(foreign)} in {folder} {'is' if len(foreign) == 1 else 'are'} not as headrace "
            "wrote it" + ("" if len(foreign) == 1 else " each"),
            hint="Look at them with --diff; --force replaces them.",
        )
    for one in planned:
        target = folder / one.path
        if one.after is None:
            target.unlink(missing_ok=True)
        elif one.change is not FileChange.UNCHANGED:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, one.after.text, mode=0o755 if one.after.is_executable else 0o644)
    record = _Record(files={one.path: _digest(one.after.text) for one in planned if one.after is not None})
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RECORD, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n", mode=0o644)


def iter_diff(planned: Sequence[PlannedFile]) -> Iterator[str]:
    """Yield the lines of a unified diff from what is there to what would be."""
    for one in planned:
        before = (one.before or "").splitlines(keepends=True)
        after = (one.after.text if one.after is not None else "").splitlines(keepends=True)
        for line in difflib.unified_diff(before, after, f"a/{one.path}", f"b/{one.path}"):
            yield line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"


def _read_record(folder: Path) -> _Record:
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=_Record)
    except (*UNDECODABLE, FileNotFoundError, NotADirectoryError):
        return _Record(files={})


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
