"""The shape of a prompt: what it consists of, piece by piece, as lengths and hashes; no text can be read from it.

Pieces stand in the order in which chat templates put them. Each has hashes of its text as it is and of what is left of
it without spaces, times, ids, digits and key order, so that two shapes tell not only where prompts part, but why.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from xxhash import xxh3_64_intdigest

MARK_BYTES = 64
"""Texts are marked so often: a difference is placed to within as many bytes."""
_SPACE = re.compile(r"\s+")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?|\d\d?:\d\d(?::\d\d)?(?:\s?[AaPp][Mm])?"
    r"|\d\d?[./]\d\d?[./]\d{2,4}|\b(?:1[5-9]|2\d)\d{8}(?:\d{3})?\b"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
    r"|\b(?:Jan|Febr)uary\b|\b(?:March|April|May|June|July|August)\b|\b(?:Septem|Octo|Novem|Decem)ber\b"
)
"""Dates, times of day, seconds since 1970, names of days and months."""
_ID = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?=[A-Za-z_-]*\d)(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{10,128}\b|\b(?=[a-f]*\d)[0-9a-f]{16,128}\b"
)
"""UUIDs, long hexadecimal numbers, and long words of letters and digits mixed."""
_DIGITS = re.compile(r"\d+")

_TEMPLATE_FIELDS = ("chat_template", "chat_template_kwargs", "reasoning_effort")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One part of a prompt."""

    place: str
    """Where it is in the request: `messages[2].content`."""
    kind: str
    """model, template, system, tool, or a message's role."""
    size_bytes: int
    exact: int
    spaceless: int
    timeless: int
    idless: int
    digitless: int
    canonical: int
    """Of JSON values: with keys in order. Of texts: as `exact`."""
    marks: tuple[int, ...]
    """Hashes of what comes before every MARK_BYTES."""


def shape_of(fields: Mapping[str, object]) -> tuple[Piece, ...]:
    """Return the pieces of a request's body, decoded. Of the chat, Messages and Responses APIs, and completions."""
    pieces = [_text("model", "model", str(fields.get("model", "")))]
    pieces += [_value(name, "template", fields[name]) for name in _TEMPLATE_FIELDS if name in fields]
    for name in ("system", "instructions"):
        if name in fields:
            pieces += _content(name, "system", fields[name])
    messages = _list(fields.get("messages", fields.get("input", fields.get("prompt"))))
    name = next((name for name in ("messages", "input", "prompt") if name in fields), "messages")
    leading = 0
    while leading < len(messages) and _role(messages[leading]) in ("system", "developer"):
        pieces += _message(f"{name}[{leading}]", messages[leading])
        leading += 1
    for number, tool in enumerate(_list(fields.get("tools"))):
        pieces.append(_value(f"tools[{number}]", "tool", tool))
    for number in range(leading, len(messages)):
        pieces += _message(f"{name}[{number}]", messages[number])
    return tuple(pieces)


def _message(place: str, message: object) -> list[Piece]:
    role = _role(message)
    if not isinstance(message, Mapping):
        return _content(place, role, message)
    fields = cast("Mapping[str, object]", message)
    pieces = _content(f"{place}.content", role, fields.get("content"))
    for name in sorted(fields.keys() - {"role", "content"}):
        pieces.append(_value(f"{place}.{name}", role, fields[name]))
    return pieces


def _content(place: str, kind: str, content: object) -> list[Piece]:
    if isinstance(content, str):
        return [_text(place, kind, content)]
    if content is None:
        return [_text(place, kind, "")]
    pieces: list[Piece] = []
    for number, part in enumerate(_list(content)):
        here = f"{place}[{number}]"
        text = _text_of(part)
        pieces.append(_value(here, kind, part) if text is None else _text(here, kind, text))
    return pieces


def _text_of(part: object) -> str | None:
    """The text of one part of a content; None where it is something else."""
    found = cast("Mapping[str, object]", part).get("text") if isinstance(part, Mapping) else part
    return found if isinstance(found, str) else None


def _role(message: object) -> str:
    return str(cast("Mapping[str, object]", message).get("role", "user")) if isinstance(message, Mapping) else "user"


def _list(value: object) -> Sequence[object]:
    if value is None:
        return ()
    return cast("list[object]", value) if isinstance(value, list) else [value]


def _value(place: str, kind: str, value: object) -> Piece:
    ordered = msgspec.json.encode(value, order="sorted").decode()
    return _piece(place, kind, msgspec.json.encode(value).decode(), canonical=_hash(ordered))


def _text(place: str, kind: str, text: str) -> Piece:
    return _piece(place, kind, text, canonical=None)


def _piece(place: str, kind: str, text: str, *, canonical: int | None) -> Piece:
    raw = text.encode("utf-8", "replace")
    exact = xxh3_64_intdigest(kind.encode() + b"\0" + raw)
    timeless = _TIME.sub("T", text)
    idless = _ID.sub("I", timeless)
    marks: list[int] = []
    before = 0
    for end in range(MARK_BYTES, len(raw) + 1, MARK_BYTES):
        before = xxh3_64_intdigest(raw[end - MARK_BYTES : end], before)
        marks.append(before)
    return Piece(
        place=place,
        kind=kind,
        size_bytes=len(raw),
        exact=exact,
        spaceless=_hash(_SPACE.sub("", text)),
        timeless=_hash(timeless),
        idless=_hash(idless),
        digitless=_hash(_DIGITS.sub("0", idless)),
        canonical=exact if canonical is None else canonical,
        marks=tuple(marks),
    )


def _hash(text: str) -> int:
    return xxh3_64_intdigest(text.encode("utf-8", "replace"))


def read_fields(body: bytes) -> Mapping[str, Any]:
    """Decode a request's body. Raises: ValueError where it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {str(error)[:120]}") from None
