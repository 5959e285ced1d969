"""Text of unit files: sections, comments, and words quoted as systemd.service(5) and systemd.syntax(7) say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@+")


@dataclass(frozen=True, slots=True)
class Remark:
    """A line of comment within a section."""

    text: str


Line = tuple[str, str] | Remark


def unit_text(head: Sequence[str], sections: Iterable[tuple[str, Sequence[Line]]]) -> str:
    """Write a unit file."""
    lines = [f"# {line}".rstrip() for line in head]
    for name, entries in sections:
        lines += ["", f"[{name}]"]
        for entry in entries:
            lines += _remark(entry.text) if isinstance(entry, Remark) else [f"{entry[0]}={entry[1]}"]
    return "\n".join(lines) + "\n"


def command(words: Sequence[str]) -> str:
    """Write a command line, one flag a line."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--") and lines[-1]:
            lines.append([])
        lines[-1].append(argument(word))
    return " \\\n    ".join(" ".join(line) for line in lines)


def argument(word: str) -> str:
    """Quote one word of a command line: nothing is expanded."""
    return quoted(word).replace("$", "$$")


def quoted(word: str) -> str:
    """Quote one word: no specifier, no escape."""
    if word and all(char in PLAIN for char in word):
        return word
    return '"' + "".join(map(_character, word)) + '"'


ESCAPES = {"\\": "\\\\", '"': '\\"', "%": "%%", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _character(char: str) -> str:
    """Escape what means something, or ends the line: systemd ends lines at a carriage return, too."""
    if char in ESCAPES:
        return ESCAPES[char]
    return f"\\x{ord(char):02x}" if ord(char) < 0x20 or ord(char) == 0x7F else char


def _remark(text: str) -> list[str]:
    return [f"# {line}".rstrip() for line in text.splitlines()]
