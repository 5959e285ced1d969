"""A prompt cut into segments in the order in which chat templates put them: parameters, system, tools, messages.

A segment is one field of one message, one tool, or one parameter. Texts are decoded and JSON values written anew
without white space, so that what no template can see makes no difference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE

PROMPT_PARAMETERS = (
    "cache_salt",
    "chat_template",
    "chat_template_kwargs",
    "reasoning_effort",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "mm_processor_kwargs",
    "lora",
    "lora_path",
)
"""Fields beside the messages that change what is prefilled. `tool_choice` and formats of answers do not, in the
templates of current models."""
KNOWN_FIELDS = frozenset(
    "content tool_calls tool_call_id name reasoning_content reasoning refusal function_call audio input system".split()
)
"""Of messages; another is called `other`, as its name is the caller's word."""
KNOWN_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
LONGEST_PROMPT_BYTES = 1_048_576
"""Longer ones are not looked at: taking one apart would hold the event loop for more than a millisecond. Chosen."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment is. Numbers and known words only: nothing a caller wrote."""

    message: int | None
    """Counted from 0 in the caller's list; None: not in a message."""
    role: str
    field: str

    @property
    def kind(self) -> str:
        """The field without numbers: a text is the same whether it is the content or its only part."""
        return self.field.partition("[")[0]

    def __str__(self) -> str:
        return self.field if self.message is None else f"messages[{self.message}].{self.field} ({self.role})"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, as it is read; not kept."""

    place: Place
    text: bytes
    """A text's UTF-8, or compact JSON."""
    is_json: bool


class UnreadableError(ValueError):
    """The prompt is not what its API says."""


_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_LEADING_ROLES = ("system", "developer")


def segments_of(fields: Mapping[str, msgspec.Raw], dialect: ApiDialect) -> Iterator[Segment]:
    """Cut a request's prompt. Raises: UnreadableError."""
    try:
        yield from _segments(fields, dialect)
    except (*UNDECODABLE, UnicodeError) as error:
        raise UnreadableError(f"the prompt cannot be read: {error}") from error


def _segments(fields: Mapping[str, msgspec.Raw], dialect: ApiDialect) -> Iterator[Segment]:
    for name in PROMPT_PARAMETERS:
        if name in fields:
            yield _json(Place(None, "", name), fields[name])
    if dialect is ApiDialect.COMPLETIONS:
        if "prompt" in fields:
            yield _value(Place(None, "", "prompt"), fields["prompt"])
        return
    for name in ("system", "instructions"):
        if name in fields:
            yield from _content(None, "system", name, fields[name])
    raw = bytes(fields.get("input" if dialect is ApiDialect.RESPONSES else "messages", b"[]")).lstrip()
    if raw.startswith(b'"'):
        messages: list[msgspec.Raw] = []
    else:
        messages = _decode_list(raw)
    heads = [_decode_object(message) for message in messages]
    leads = 0
    while leads < len(heads) and _role(heads[leads]) in _LEADING_ROLES:
        yield from _message(leads, heads[leads])
        leads += 1
    if "tools" in fields:
        for number, tool in enumerate(_decode_list(fields["tools"])):
            yield _json(Place(None, "", f"tools[{number}]"), tool)
    if raw.startswith(b'"'):
        yield _value(Place(None, "user", "input"), msgspec.Raw(raw))
    for number in range(leads, len(heads)):
        yield from _message(number, heads[number])


def _message(number: int, message: Mapping[str, msgspec.Raw]) -> Iterator[Segment]:
    role = _role(message)
    for field, raw in message.items():
        if field == "content":
            yield from _content(number, role, field, raw)
        elif field != "role" and bytes(raw) != b"null":
            name = field if field in KNOWN_FIELDS else "other"
            yield _value(Place(number, role, name), raw)


def _content(number: int | None, role: str, field: str, raw: msgspec.Raw) -> Iterator[Segment]:
    """A text, or a list of parts, each of which is a segment."""
    if not bytes(raw).startswith(b"["):
        if bytes(raw) != b"null":
            yield _value(Place(number, role, field), raw)
        return
    for part, value in enumerate(_decode_list(raw)):
        found = _decode_object(value) if bytes(value).startswith(b"{") else {}
        if "text" in found and bytes(found["text"]).startswith(b'"'):
            yield _value(Place(number, role, f"{field}[{part}].text"), found["text"])
        else:
            yield _json(Place(number, role, f"{field}[{part}]"), value)


def _role(message: Mapping[str, msgspec.Raw]) -> str:
    raw = message.get("role")
    role = None if raw is None else msgspec.json.decode(raw)
    return role if isinstance(role, str) and role in KNOWN_ROLES else "other"


def _value(place: Place, raw: msgspec.Raw) -> Segment:
    if bytes(raw).startswith(b'"'):
        return Segment(place, msgspec.json.decode(raw, type=str).encode(), is_json=False)
    return _json(place, raw)


def _json(place: Place, raw: msgspec.Raw) -> Segment:
    return Segment(place, _encode(msgspec.json.decode(raw)), is_json=True)


def sorted_json(text: bytes) -> bytes:
    """The same JSON with the keys of every object in order."""
    return _encode_sorted(msgspec.json.decode(text))
