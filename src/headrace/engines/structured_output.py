"""Structured output: what a caller's constraint says, whichever dialect it is written in. Pure.

`constraint_reader.py` reads it from a request; each engine's `structured.py` writes it in the engine's own words, or
says that the engine cannot.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

import msgspec

from headrace.domain.request import ApiDialect

NULL = msgspec.Raw(b"null")
CONSTRAINT_BYTES = 65536
"""Longest regular expression or grammar taken from a caller: engines compile them, some in one thread. Chosen."""
NESTING_DEPTH = 64
"""Deepest brackets in one: engines parse them by recursion, and llama.cpp's process would end. Chosen."""


class ConstraintKind(StrEnum):
    """What the output is held to; the value is how messages call it."""

    JSON_OBJECT = "a JSON object"
    JSON_SCHEMA = "a JSON schema"
    REGEX = "a regular expression"
    CHOICE = "a choice"
    GRAMMAR = "a grammar"
    STRUCTURAL_TAG = "structural tags"


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """One constraint, read from one request."""

    kind: ConstraintKind
    field: str
    """Top-level field that held it."""
    shown: str
    """The same with its member, for messages: `structured_outputs.regex`."""
    schema: msgspec.Raw = NULL
    """Of JSON_SCHEMA, as the caller wrote it."""
    text: str = ""
    """Of REGEX and GRAMMAR."""
    choices: tuple[str, ...] = ()
    tag: msgspec.Raw = NULL
    """Of STRUCTURAL_TAG: the whole `response_format` object."""
    name: str = "answer"
    """Of a schema that has none: some engines need one."""
    strict: bool | None = None
    is_usual: bool = True
    """Written in the usual form of its field, so that an engine that has the field can be sent it unchanged."""
    rest: Mapping[str, msgspec.Raw] = {}
    """Other members of `text` or `output_config`, which stay."""
    options: tuple[str, ...] = ()
    """Members that fine-tune vLLM's `structured_outputs` and mean nothing elsewhere."""


class CannotSayError(Exception):
    """The engine has no words for what is asked; the message is the reason, to follow the engine's name."""


Written = dict[str, object]
"""Fields for the engine's request, by name; values are encoded as JSON."""

ConstraintWriter = Callable[[Constraint, ApiDialect], Written]


def no_structured_output(constraint: Constraint, api: ApiDialect) -> Written:
    """The writer of an engine that holds output to nothing."""
    del api
    raise CannotSayError(f"cannot hold output to {constraint.kind.value}")


def response_format(constraint: Constraint) -> Written:
    """`response_format` of OpenAI's chat API, for the kinds that it has. Raises: CannotSayError."""
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return {"response_format": {"type": "json_object"}}
        case ConstraintKind.JSON_SCHEMA:
            inner = {"name": constraint.name, "schema": constraint.schema, **_strict(constraint)}
            return {"response_format": {"type": "json_schema", "json_schema": inner}}
        case ConstraintKind.STRUCTURAL_TAG:
            return {"response_format": constraint.tag}
        case _:
            raise CannotSayError(f"cannot hold output to {constraint.kind.value} in response_format")


def text_format(constraint: Constraint) -> Written:
    """`text.format` of OpenAI's Responses API. Raises: CannotSayError."""
    rest: Mapping[str, object] = constraint.rest if constraint.field == "text" else {}
    match constraint.kind:
        case ConstraintKind.JSON_OBJECT:
            return {"text": {**rest, "format": {"type": "json_object"}}}
        case ConstraintKind.JSON_SCHEMA:
            inner = {"name": constraint.name, "schema": constraint.schema, **_strict(constraint)}
            return {"text": {**rest, "format": {"type": "json_schema", **inner}}}
        case _:
            raise CannotSayError(f"cannot hold output to {constraint.kind.value} at /v1/responses")


def output_config(constraint: Constraint) -> Written:
    """`output_config.format` of Anthropic's Messages API, which has JSON schemas only. Raises: CannotSayError."""
    if constraint.kind is not ConstraintKind.JSON_SCHEMA:
        raise CannotSayError(f"cannot hold output to {constraint.kind.value} at /v1/messages")
    rest: Mapping[str, object] = constraint.rest if constraint.field == "output_config" else {}
    return {"output_config": {**rest, "format": {"type": "json_schema", "schema": constraint.schema}}}


def refuse_options(constraint: Constraint) -> None:
    """For engines without vLLM's fine-tuning. Raises: CannotSayError."""
    if constraint.options:
        raise CannotSayError(f"has no {constraint.field}.{constraint.options[0]}")


def _strict(constraint: Constraint) -> dict[str, bool]:
    return {} if constraint.strict is None else {"strict": constraint.strict}
