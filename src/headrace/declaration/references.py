"""`${env:NAME}` and `${file:PATH}` inside values: expanded here, and the only way a secret gets into a declaration.

What was expanded is never shown: messages quote the file's own text.
"""

import re
from collections.abc import Mapping as EnvironMapping
from pathlib import Path

from headrace.declaration.fields import has_mark
from headrace.declaration.plain_file import read_plain
from headrace.declaration.problem import KeyPath
from headrace.declaration.yaml_tree import Mapping, Mark, Node, Scalar, Sequence, Slip

SECRET_FILE_BYTES = 1_048_576
"""Largest file that `${file:PATH}` reads (chat templates are the largest known use, far below)."""

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|passw|credential|signature", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^/@:\s]*:[^/@\s]+@|[?&](?:ssl)?password=[^&\s]")

_URLS: frozenset[KeyPath] = frozenset({("ledger", "database"), ("gateway", "sharing", "redis")})
"""May stand in clear, but for a password in them."""

REMEDY = "Write ${env:NAME} or ${file:PATH} instead: secrets do not belong into the file."


class References:
    """Expands the references of one tree, and collects what is wrong with them.

    `keeps_secrets`: a value that may be a secret, and any variable of an engine's environment, stays as it is written,
    for output that must refer to secrets and never hold them (`headrace render`).
    """

    def __init__(self, *, environ: EnvironMapping[str, str], folder: Path, keeps_secrets: bool = False) -> None:
        self._environ = environ
        self._folder = folder
        self._keeps_secrets = keeps_secrets
        self.kept: list[KeyPath] = []
        """Where references were left as they are."""
        self.missing: list[tuple[KeyPath, Slip]] = []
        """References without a value on this machine."""
        self.refused: list[tuple[KeyPath, Slip]] = []
        """Secrets in clear, and references of a kind that does not exist."""

    def expand(self, node: Node, path: KeyPath = ()) -> None:
        """Expand every string below `node` in place. A value shared by an alias is expanded once."""
        if isinstance(node, Mapping):
            for key, child in node.entries.items():
                self.expand(child, (*path, key))
        elif isinstance(node, Sequence):
            for number, child in enumerate(node.items):
                self.expand(child, (*path, number))
        elif isinstance(node.value, str):
            self._expand_scalar(node, path)
        elif node.value is not None and _is_secret(path):
            node.value = node.text
            self._refuse_literal(path, node.mark)

    def _expand_scalar(self, node: Scalar, path: KeyPath) -> None:
        if node.text != node.value:
            return
        if _holds_literal_secret(node.text, path):
            self._refuse_literal(path, node.mark)
        if self._keeps_secrets and _may_be_secret(path) and _has_reference(node.text):
            self.kept.append(path)
            return
        node.value = _REFERENCE.sub(lambda found: self._resolve(found, node, path), node.text)

    def _refuse_literal(self, path: KeyPath, mark: Mark) -> None:
        self.refused.append((path, Slip(mark, "holds a secret in clear", REMEDY)))

    def _resolve(self, found: re.Match[str], node: Scalar, path: KeyPath) -> str:
        whole, inner = found[0], found[1]
        if whole == "$${":
            return "${"
        kind, _, name = inner.partition(":")
        try:
            if kind == "env":
                return self._environment(name)
            if kind == "file" and name:
                return self._file(name)
        except _MissingError as error:
            self.missing.append((path, Slip(node.mark, str(error), error.hint)))
            return whole
        slip = Slip(
            node.mark,
            f"{whole} is not a reference",
            "References are ${env:NAME} and ${file:PATH}; write $${ for a literal ${.",
        )
        self.refused.append((path, slip))
        return whole

    def _environment(self, name: str) -> str:
        if not _ENV_NAME.fullmatch(name):
            raise _MissingError(f'"{name}" is not the name of an environment variable', None)
        value = self._environ.get(name)
        if not value:
            said = "is not set" if value is None else "is empty"
            raise _MissingError(f"the environment variable {name} {said}", "Set it before headrace starts.")
        return value

    def _file(self, name: str) -> str:
        path = self._folder / Path(name).expanduser()
        try:
            content = read_plain(path, SECRET_FILE_BYTES)
            if len(content) > SECRET_FILE_BYTES:
                raise _MissingError(f"the file {name} is larger than {SECRET_FILE_BYTES} bytes", None)
            text = content.decode().rstrip("\r\n")
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else "is not readable UTF-8 text"
            hint = "A relative path counts from the declaration's folder."
            raise _MissingError(f"the file {name} cannot be read: {said}", hint) from error
        if not text:
            raise _MissingError(f"the file {name} is empty", None)
        if "\0" in text:
            raise _MissingError(f"the file {name} holds the character NUL", None)
        return text


class _MissingError(Exception):
    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


def _holds_literal_secret(text: str, path: KeyPath) -> bool:
    if path in _URLS:
        return _URL_PASSWORD.search(_REFERENCE.sub("", text)) is not None
    return _is_secret(path) and all(found[0] == "$${" for found in _REFERENCE.finditer(text))


def _may_be_secret(path: KeyPath) -> bool:
    return has_mark(path, "x-secret") or has_mark(path[:-1], "x-secret-names")


def _has_reference(text: str) -> bool:
    return any(found[0] != "$${" for found in _REFERENCE.finditer(text))


def _is_secret(path: KeyPath) -> bool:
    """Tell whether the value at `path` may not stand in the file: bearer tokens and headers that look like secrets."""
    if not has_mark(path, "x-secret") or path in _URLS:
        return False
    *_, section, key = path
    return section != "headers" or _SECRET_HEADER.search(str(key)) is not None
