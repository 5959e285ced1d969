"""Shell text: commands with one option a line, every word quoted where it needs it, files as here-documents."""

import hashlib
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

END_MARK = "HEADRACE_END"


def command(words: Sequence[Sequence[str]]) -> str:
    """Write one command over several lines: each entry is an option with its values."""
    return " \\\n  ".join(" ".join(map(quoted, line)) for line in words)


class Raw(str):
    """A word that is written as it is, since the shell is to expand it."""

    __slots__ = ()


def quoted(word: str) -> str:
    return word if isinstance(word, Raw) else shlex.quote(word)


def broken_at_flags(words: Sequence[str]) -> list[list[str]]:
    """Put each long flag on a line of its own, with its values."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append([])
        lines[-1].append(word)
    return lines


def here_document(folder: str, path: PurePosixPath, text: str) -> list[str]:
    """Write a file below the shell variable `folder`; its text is not expanded."""
    mark = END_MARK
    while mark in text.splitlines():
        mark += "_"
    target = f'"${folder}"/{quoted(str(path))}'
    parent = f'"${folder}"/{quoted(str(path.parent))}'
    body = text if text.endswith("\n") else text + "\n"
    return [f"mkdir -p {parent}", f"cat > {target} <<'{mark}'", *body.splitlines(), mark]


def mark_of(text: str) -> str:
    """A short name of a content."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def comment(text: str) -> list[str]:
    """Write lines of comment."""
    return [f"# {line}".rstrip() for line in text.splitlines()]
