"""YAML written so that it can be read: keys in the order given, comments where a value came from, stable bytes.

Plain mappings, lists and scalars in; `Noted` puts a comment above a value's key or list item.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

PLAIN = re.compile(r"(?:--?)?[A-Za-z_/][A-Za-z0-9_./@+-]*(?:[:=,][A-Za-z0-9_./@+-]+)*")
"""Text that no YAML parser takes for anything but text, together with NOT_TEXT."""
NOT_TEXT = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
"""Words of YAML 1.1 and 1.2, in lower case, that are no text when they stand plain."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A value with a comment: where it comes from, or why it is so."""

    value: object
    comment: str


def yaml_text(node: object, *, head: Sequence[str] = ()) -> str:
    """Write one document; `head` are lines of comment above it."""
    lines = [f"# {line}" if line else "#" for line in head]
    lines += _lines(node, 0)
    return "\n".join(lines) + "\n"


def yaml_documents(texts: Sequence[str]) -> str:
    """Join documents to one stream."""
    return "---\n".join(texts)


def _lines(node: object, indent: int) -> Iterator[str]:
    value = node.value if isinstance(node, Noted) else node
    if not _is_nested(value):
        yield " " * indent + _inline(value)
    elif isinstance(value, Mapping):
        for key, child in cast("Mapping[object, object]", value).items():
            yield from _entry(f"{_scalar(key)}:", child, indent)
    else:
        for child in cast("Sequence[object]", value):
            yield from _item(child, indent)


def _entry(key: str, value: object, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, Noted):
        yield from _comment(value.comment, pad)
        value = value.value
    if _is_nested(value):
        yield pad + key
        yield from _lines(value, indent + 2)
    elif isinstance(value, str) and _is_block(value):
        yield from _block(pad + key, value, indent + 2)
    else:
        yield f"{pad}{key} {_inline(value)}"


def _item(value: object, indent: int) -> Iterator[str]:
    pad = " " * indent
    if isinstance(value, Noted):
        yield from _comment(value.comment, pad)
        value = value.value
    if _is_nested(value):
        lines = list(_lines(value, indent + 2))
        first = next(number for number, line in enumerate(lines) if not line.lstrip().startswith("#"))
        yield from (pad + line.lstrip() for line in lines[:first])
        yield f"{pad}- {lines[first][indent + 2 :]}"
        yield from lines[first + 1 :]
    elif isinstance(value, str) and _is_block(value):
        yield from _block(pad + "-", value, indent + 2)
    else:
        yield f"{pad}- {_inline(value)}"


def _comment(text: str, pad: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"{pad}# {line}".rstrip()


def _block(start: str, text: str, indent: int) -> Iterator[str]:
    keep = "" if text.endswith("\n") else "-"
    yield f"{start} |{keep}"
    for line in text.removesuffix("\n").split("\n"):
        yield " " * indent + line if line else ""


def _is_block(text: str) -> bool:
    """Literal blocks hold text as it is, but not every text: no leading blanks, no trailing ones, no odd characters."""
    body = text.removesuffix("\n")
    has_breaks = "\n" in body
    is_clean = all(char.isprintable() or char == "\n" for char in body) and "\u2028" not in body
    lines = body.split("\n")
    return has_breaks and is_clean and bool(lines[0]) and lines[0][0] != " " and bool(lines[-1].strip())


def _is_nested(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple)) and len(cast("Sequence[object]", value)) > 0


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, (list, tuple)):
        return "[]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    text = str(value)
    if PLAIN.fullmatch(text) and text.lower() not in NOT_TEXT:
        return text
    return '"' + "".join(map(_character, text)) + '"'


ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _character(char: str) -> str:
    """Escape what YAML's double-quoted style cannot hold as it is."""
    if char in ESCAPES:
        return ESCAPES[char]
    if char.isprintable() and char != "\ufeff":
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
