"""Constraints read from any dialect: one meaning, whichever words."""

from typing import Any

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect
from headrace.engines.constraint_reader import READERS, read_constraint
from headrace.engines.structured_output import CONSTRAINT_BYTES, NESTING_DEPTH, Constraint, ConstraintKind

SCHEMA = {"type": "object"}
RAW = msgspec.Raw(b'{"type":"object"}')


def read(body: dict[str, Any], api: ApiDialect = ApiDialect.CHAT_COMPLETIONS) -> Constraint | None:
    return read_constraint({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}, api)


@pytest.mark.parametrize(
    ("body", "api"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}}, "chat"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "chat"),
        ({"response_format": {"type": "json", "schema": SCHEMA}}, "chat"),
        ({"structured_outputs": {"json": SCHEMA}}, "chat"),
        ({"structured_outputs": {"json": '{"type":"object"}', "regex": None}}, "chat"),
        ({"guided_json": SCHEMA}, "chat"),
        ({"json_schema": '{"type":"object"}'}, "chat"),
        ({"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"}}, "responses"),
        ({"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}}, "messages"),
        ({"output_format": {"type": "json_schema", "schema": SCHEMA}}, "messages"),
    ],
)
def test_a_schema_is_the_same_in_all_words(body: dict[str, Any], api: str) -> None:
    """OpenAI's, Anthropic's, vLLM's, SGLang's and llama.cpp's way to say it."""
    apis = {"chat": ApiDialect.CHAT_COMPLETIONS, "responses": ApiDialect.RESPONSES, "messages": ApiDialect.MESSAGES}
    constraint = read(body, apis[api])
    assert constraint is not None
    assert (constraint.kind, constraint.schema) == (ConstraintKind.JSON_SCHEMA, RAW)
    assert constraint.field == next(iter(body))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"structured_outputs": None},
        {"structured_outputs": {}},
        {"structured_outputs": {"json_object": False}},
        {"guided_choice": None, "regex": None, "grammar": None},
        {"text": "not a constraint at chat completions", "output_config": 1},
    ],
)
def test_no_constraint_is_none(body: dict[str, Any]) -> None:
    """Null, `text` and fields that another API has are no constraint."""
    assert read(body) is None


@pytest.mark.parametrize(
    "body",
    [
        {"regex": "a", "ebnf": 'root ::= "a"'},
        {"response_format": {"type": "json_object"}, "guided_choice": ["a"]},
        {"structured_outputs": {"regex": "a", "choice": ["a"]}},
    ],
)
def test_two_constraints_are_refused(body: dict[str, Any]) -> None:
    """Nobody can say which of two counts."""
    with pytest.raises(RequestError, match="both hold the output") as raised:
        read(body)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": "json"},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": "{broken"}}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}},
        {"structured_outputs": {"xml": "a"}},
        {"guided_choice": []},
        {"guided_choice": ["a", "a"]},
        {"guided_choice": ["a", ""]},
        {"guided_choice": "a"},
        {"regex": ""},
        {"regex": 1},
        {"regex": "a" * (CONSTRAINT_BYTES + 1)},
        {"grammar": "(" * (NESTING_DEPTH + 1)},
    ],
)
def test_what_cannot_be_read_is_the_callers_error(body: dict[str, Any]) -> None:
    """Named by field; a grammar without bound would cost an engine's whole time or stack."""
    with pytest.raises(RequestError) as raised:
        read(body)
    assert (raised.value.code, raised.value.param) == (ErrorCode.INVALID_REQUEST, next(iter(body)))


def test_limits_are_inclusive() -> None:
    """The longest and the deepest pass."""
    assert read({"regex": "a" * CONSTRAINT_BYTES}) is not None
    assert read({"grammar": "(" * NESTING_DEPTH}) is not None


@pytest.mark.parametrize("value", [None, True, 1, "x", [], {}, [{}], {"type": 1}, {"json_schema": 1}])
def test_odd_values_never_raise_anything_else(value: object) -> None:
    """Whatever a caller sends is read, ignored or refused."""
    for name in READERS:
        for api in ApiDialect:
            try:
                read({name: value}, api)
            except RequestError as error:
                assert error.param == name  # noqa: PT017 (any of three outcomes is right)
