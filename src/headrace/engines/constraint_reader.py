"""Reads a request's constraint on its output, in any dialect that callers use: OpenAI's `response_format` and
`text.format`, Anthropic's `output_config`, vLLM's `structured_outputs` and `guided_*`, SGLang's and llama.cpp's fields.

Counterpart: `structured_output.py`.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.grammar import nesting_depth
from headrace.engines.structured_output import CONSTRAINT_BYTES, NESTING_DEPTH, NULL, Constraint, ConstraintKind

Members = dict[str, msgspec.Raw]
Reader = Callable[[str, msgspec.Raw], Constraint | None]
_decode_members = msgspec.json.Decoder(Members).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(list[str]).decode
_decode_flag = msgspec.json.Decoder(bool).decode

API_OF_FIELD: Mapping[str, ApiDialect] = MappingProxyType(
    {"text": ApiDialect.RESPONSES, "output_config": ApiDialect.MESSAGES, "output_format": ApiDialect.MESSAGES}
)
"""Fields that hold a constraint on one API only; elsewhere they are fields like any other."""

OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")
"""Members of vLLM's `structured_outputs` that constrain nothing. Source: vllm/sampling_params.py, 0.33.0."""


def read_constraint(fields: Mapping[str, msgspec.Raw], api: ApiDialect) -> Constraint | None:
    """Return the one constraint of a request, or None. Raises: RequestError for two, and for what cannot be read."""
    found = [
        made
        for name, read in READERS.items()
        if name in fields and API_OF_FIELD.get(name, api) is api and (made := read(name, fields[name]))
    ]
    if len(found) > 1:
        message = f"{found[0].shown} and {found[1].shown} both hold the output to something; give one of them"
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param=found[1].field)
    return found[0] if found else None


def _response_format(name: str, raw: msgspec.Raw) -> Constraint | None:
    members = _members(name, raw)
    kind = _text(f"{name}.type", members.get("type", NULL)) if members else "text"
    match kind:
        case "text":
            return None
        case "json_object" if "schema" not in members:
            return Constraint(kind=ConstraintKind.JSON_OBJECT, field=name, shown=name)
        case "json_object" | "json":  # llama.cpp's and TensorRT-LLM's short form
            return _schema(name, f"{name}.schema", members.get("schema", NULL), is_usual=False)
        case "json_schema":
            inner = _members(f"{name}.json_schema", members.get("json_schema", NULL))
            if not inner:
                raise _invalid(name, f"{name}.json_schema is missing")
            return _schema(name, f"{name}.json_schema.schema", inner.get("schema", NULL), named=inner)
        case "regex":
            return _pattern(name, f"{name}.regex", members.get("regex", NULL))
        case "ebnf":
            return _grammar(name, f"{name}.ebnf", members.get("ebnf", NULL))
        case "structural_tag":
            return Constraint(kind=ConstraintKind.STRUCTURAL_TAG, field=name, shown=name, tag=raw)
        case _:
            raise _invalid(name, f"{name}.type is {kind[:40]!r}; known are {', '.join(FORMAT_TYPES)}")


FORMAT_TYPES = ("text", "json_object", "json_schema", "json", "regex", "ebnf", "structural_tag")


def _structured_outputs(name: str, raw: msgspec.Raw) -> Constraint | None:
    members = {member: value for member, value in _members(name, raw).items() if value != NULL}
    options = tuple(option for option in OPTIONS if option in members)
    found: list[Constraint] = []
    for member, read in MEMBERS.items():
        if member in members and (made := read(name, f"{name}.{member}", members[member])):
            found.append(made)
    if unknown := members.keys() - MEMBERS.keys() - set(OPTIONS):
        raise _invalid(name, f"{name} has no member {min(unknown)[:64]!r}; known are {', '.join((*MEMBERS, *OPTIONS))}")
    if len(found) > 1:
        raise _invalid(name, f"{found[0].shown} and {found[1].shown} both hold the output to something; give one")
    return msgspec.structs.replace(found[0], options=options) if found else None


def _text_format(name: str, raw: msgspec.Raw) -> Constraint | None:
    """Of the Responses API: `text.format`, beside `text.verbosity`."""
    members = _members(name, raw)
    wanted = _members(f"{name}.format", members.pop("format", NULL))
    kind = _text(f"{name}.format.type", wanted.get("type", NULL)) if wanted else "text"
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint(kind=ConstraintKind.JSON_OBJECT, field=name, shown=f"{name}.format", rest=members)
    if kind == "json_schema":
        return _schema(name, f"{name}.format.schema", wanted.get("schema", NULL), named=wanted, rest=members)
    raise _invalid(name, f"{name}.format.type is {kind[:40]!r}; known are text, json_object, json_schema")


def _output_config(name: str, raw: msgspec.Raw) -> Constraint | None:
    """Of the Messages API: `output_config.format`, beside `output_config.effort`; `output_format` is the older form."""
    members = _members(name, raw)
    wanted = _members(f"{name}.format", members.pop("format", NULL)) if name == "output_config" else members
    if not wanted:
        return None
    kind = _text(f"{name}.type", wanted.get("type", NULL))
    if kind != "json_schema":
        raise _invalid(name, f"{name}: the only format is json_schema, not {kind[:40]!r}")
    rest = members if name == "output_config" else {}
    shown = f"{name}.format.schema" if name == "output_config" else f"{name}.schema"
    return _schema(name, shown, wanted.get("schema", NULL), rest=rest)


def _schema(
    name: str,
    shown: str,
    raw: msgspec.Raw,
    *,
    named: Members | None = None,
    rest: Members | None = None,
    is_usual: bool = True,
) -> Constraint:
    schema = raw
    if bytes(raw).startswith(b'"'):  # some take a schema as JSON text too; llama.cpp ignores one
        is_usual = False
        try:
            schema = msgspec.json.decode(_text(shown, raw), type=msgspec.Raw)
        except UNDECODABLE:
            raise _invalid(name, f"{shown} is text that is not JSON") from None
    if not bytes(schema).lstrip().startswith((b"{", b"true", b"false")):
        raise _invalid(name, f"{shown} must be a JSON schema")
    given = named or {}
    return Constraint(
        kind=ConstraintKind.JSON_SCHEMA,
        field=name,
        shown=shown,
        schema=schema,
        name=_text(f"{name}.name", given["name"]) if "name" in given else "answer",
        strict=_flag(f"{name}.strict", given["strict"]) if given.get("strict", NULL) != NULL else None,
        is_usual=is_usual,
        rest=rest or {},
    )


def _member_schema(name: str, shown: str, raw: msgspec.Raw) -> Constraint:
    return _schema(name, shown, raw)


def _pattern(name: str, shown: str, raw: msgspec.Raw) -> Constraint:
    return Constraint(kind=ConstraintKind.REGEX, field=name, shown=shown, text=_bounded(name, shown, raw))


def _grammar(name: str, shown: str, raw: msgspec.Raw) -> Constraint:
    return Constraint(kind=ConstraintKind.GRAMMAR, field=name, shown=shown, text=_bounded(name, shown, raw))


def _choice(name: str, shown: str, raw: msgspec.Raw) -> Constraint:
    try:
        choices = tuple(_decode_texts(raw))
    except UNDECODABLE:
        choices = ()
    if not choices or not all(choices) or len(set(choices)) != len(choices):
        raise _invalid(name, f"{shown} must be a list of different texts, none empty")
    return Constraint(kind=ConstraintKind.CHOICE, field=name, shown=shown, choices=choices)


def _json_object(name: str, shown: str, raw: msgspec.Raw) -> Constraint | None:
    return Constraint(kind=ConstraintKind.JSON_OBJECT, field=name, shown=shown) if _flag(shown, raw) else None


def _tag(name: str, shown: str, raw: msgspec.Raw) -> Constraint:
    """vLLM's: JSON text of a structural-tag `response_format`."""
    try:
        tag = msgspec.json.decode(_text(shown, raw), type=msgspec.Raw)
    except UNDECODABLE:
        raise _invalid(name, f"{shown} is text that is not JSON") from None
    return Constraint(kind=ConstraintKind.STRUCTURAL_TAG, field=name, shown=shown, tag=tag)


MEMBERS: Mapping[str, Callable[[str, str, msgspec.Raw], Constraint | None]] = MappingProxyType(
    {
        "json": _member_schema,
        "regex": _pattern,
        "choice": _choice,
        "grammar": _grammar,
        "json_object": _json_object,
        "structural_tag": _tag,
    }
)
"""Of vLLM's `structured_outputs`; its older `guided_*` fields hold the same. Source: vllm/sampling_params.py."""


def _alone(read: Callable[[str, str, msgspec.Raw], Constraint | None]) -> Reader:
    """A field that holds a constraint by itself; null is none."""
    return lambda name, raw: None if raw == NULL else read(name, name, raw)


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "response_format": _response_format,
        "text": _text_format,
        "output_config": _output_config,
        "output_format": _output_config,
        "structured_outputs": _structured_outputs,
        **{f"guided_{member}": _alone(read) for member, read in MEMBERS.items()},
        "regex": _alone(_pattern),
        "ebnf": _alone(_grammar),
        "json_schema": _alone(_member_schema),
        "grammar": _alone(_grammar),
    }
)
"""Top-level fields that may hold a constraint. Sources: OpenAI's and Anthropic's API references; the request classes of
vLLM 0.33.0, SGLang 0.5.23 and llama.cpp b11549; `guided_*`: vLLM up to 0.11."""


def _members(shown: str, raw: msgspec.Raw) -> Members:
    if raw == NULL:
        return {}
    try:
        return _decode_members(raw)
    except UNDECODABLE:
        raise _invalid(shown.partition(".")[0], f"{shown} must be an object") from None


def _text(shown: str, raw: msgspec.Raw) -> str:
    try:
        return _decode_text(raw)
    except UNDECODABLE:
        raise _invalid(shown.partition(".")[0], f"{shown} must be a text") from None


def _flag(shown: str, raw: msgspec.Raw) -> bool:
    try:
        return _decode_flag(raw)
    except UNDECODABLE:
        raise _invalid(shown.partition(".")[0], f"{shown} must be true or false") from None


def _bounded(name: str, shown: str, raw: msgspec.Raw) -> str:
    text = _text(shown, raw)
    if not text or len(text.encode("utf-8", "surrogatepass")) > CONSTRAINT_BYTES:
        raise _invalid(name, f"{shown} must have 1 to {CONSTRAINT_BYTES} bytes")
    if nesting_depth(text) > NESTING_DEPTH:
        raise _invalid(name, f"{shown} has brackets more than {NESTING_DEPTH} deep")
    return text


def _invalid(param: str, message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message, param=param)
