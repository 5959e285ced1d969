"""Documents made from schemas."""

import json
import re

import pytest

from headrace.engines.simulated.schema_instance import SchemaError, instance_of, match_of

NESTED = {
    "$defs": {"part": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "type": "object",
    "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 2}},
    "required": ["parts"],
}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"type": "string"}, "a"),
        ({"type": "string", "minLength": 3}, "aaa"),
        ({"type": "string", "maxLength": 0}, ""),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"type": "integer"}, 0),
        ({"type": "integer", "minimum": 7}, 7),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "minimum": 0.25}, 0.25),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "string"]}, "a"),
        ({"const": {"x": 1}}, {"x": 1}),
        ({"enum": ["b", "c"]}, "b"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 0),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}, "type": "object"}]}, {"a": 0}),
        ({"type": "array"}, []),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}, [0, 1, 2]),
        ({"type": "object"}, {}),
        ({"properties": {"a": {"type": "null"}}, "required": ["a"]}, {"a": None}),
        ({"type": "object", "minProperties": 1}, {"key0": ""}),
        (NESTED, {"parts": [{"n": 0}, {"n": 0}]}),
    ],
)
def test_the_smallest_document_of_a_schema(schema: object, made: object):
    """Every keyword that structured output uses is kept to."""
    assert instance_of(schema) == made
    assert json.loads(json.dumps(instance_of(schema))) == made


@pytest.mark.parametrize(
    "pattern", [r"^[A-Z]{2}-\d+$", r"(yes|no)", r"[^a]b?c*", r"\w+@\w+\.com", r".{3}", r"^\s?x$", r"(?:ab){2,4}"]
)
def test_a_pattern_is_matched(pattern: str):
    """The made text matches."""
    assert re.search(pattern, match_of(pattern))
    assert instance_of({"type": "string", "pattern": pattern}) == match_of(pattern)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "colour"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": "(?=a)b"},
        "string",
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": {"a": {}}},
        {"enum": {"a": 1}},
        {"allOf": "abc"},
        {"type": "array", "prefixItems": {"a": 1}},
        {"type": "object", "required": 5},
        {"type": "string", "minLength": "x"},
    ],
)
def test_what_cannot_be_made_is_said(schema: object):
    """Impossible and endless schemas are an error, not a wrong document."""
    with pytest.raises(SchemaError):
        instance_of(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**9},
        {"type": "array", "minItems": 10**9},
        {"type": "object", "minProperties": 10**9},
        {"type": "array", "minItems": 500, "items": {"type": "array", "minItems": 500}},
        {"type": "string", "pattern": "a{1000000000}"},
        {"type": "string", "pattern": "(((a{4000}){4000}){4000})"},
    ],
)
def test_a_schema_cannot_take_the_engines_memory(schema: object):
    """A bound that somebody typed by accident is an error at once, not gigabytes of text."""
    with pytest.raises(SchemaError, match="more than"):
        instance_of(schema)
