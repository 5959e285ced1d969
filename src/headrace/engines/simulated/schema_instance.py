"""The smallest document that keeps to a JSON schema, always the same one for the same schema.

Covers the keywords that structured output uses; what it does not know is left out, and impossible schemas raise.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any, cast

MAX_DEPTH = 24
"""Deeper ones recurse without end."""

MAX_CHARACTERS = 65_536
"""Longest text made: more would only be an accident, and would stop every stream of the engine."""

MAX_PARTS = 16_384
"""Most values looked at for one document, for the same reason."""


class SchemaError(ValueError):
    """No document of this schema can be made; the message says where."""


def instance_of(schema: object, *, seed: int = 0) -> object:
    """Make a document that `schema` allows.

    Raises: SchemaError.
    """
    try:
        return _Maker(schema, seed).make(schema, 0)
    except SchemaError:
        raise
    except (LookupError, AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise SchemaError(f"a keyword has a value of the wrong kind: {error}") from error


class _Maker:
    def __init__(self, root: object, seed: int) -> None:
        self._root = root
        self._seed = seed
        self._parts = 0

    def make(self, schema: object, depth: int) -> object:
        self._count(depth)
        if schema is True or schema == {}:
            return ""
        if not isinstance(schema, Mapping):
            raise SchemaError("a schema must be an object")
        rules = self._resolved(cast("Mapping[str, Any]", schema), depth)
        if "const" in rules:
            return rules["const"]
        if options := rules.get("enum"):
            return options[self._seed % len(options)]
        for word in ("anyOf", "oneOf"):
            if rules.get(word):
                return self.make(rules[word][0], depth + 1)
        return self._of_type(_type_of(rules), rules, depth)

    def _count(self, depth: int) -> None:
        """Count one more value; raises where there are too many, or too deep."""
        if depth > MAX_DEPTH:
            raise SchemaError(f"the schema nests deeper than {MAX_DEPTH}")
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SchemaError(f"the schema needs more than {MAX_PARTS} values")

    def _resolved(self, rules: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """Follow `$ref` within the document, and join `allOf`."""
        self._count(depth)
        for _ in range(MAX_DEPTH):
            reference = rules.get("$ref")
            if not isinstance(reference, str):
                break
            rules = self._at(reference)
        if parts := rules.get("allOf"):
            merged = {key: value for key, value in rules.items() if key != "allOf"}
            for part in parts:
                merged = _merged(merged, self._resolved(part, depth + 1))
            return merged
        return rules

    def _at(self, reference: str) -> Mapping[str, Any]:
        found = cast("Mapping[str, Any]", self._root)
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not name:
                continue
            if not isinstance(found.get(name), Mapping):
                raise SchemaError(f"$ref {reference!r} leads nowhere")
            found = cast("Mapping[str, Any]", found[name])
        return found

    def _of_type(self, kind: str, rules: Mapping[str, Any], depth: int) -> object:
        match kind:
            case "object":
                return self._object(rules, depth)
            case "array":
                return self._array(rules, depth)
            case "string":
                return _string(rules, self._seed)
            case "integer" | "number":
                return _number(rules, is_integer=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                raise SchemaError(f"unknown type {kind!r}")

    def _object(self, rules: Mapping[str, Any], depth: int) -> dict[str, object]:
        properties: Mapping[str, Any] = rules.get("properties") or {}
        required: Sequence[str] = rules.get("required") or ()
        more: object = rules.get("additionalProperties", True)
        made = {name: self.make(properties[name], depth + 1) for name in properties if name in required}
        for name in required:
            if name not in made:
                made[name] = self.make(True if isinstance(more, bool) else more, depth + 1)
        wanted = int(rules.get("minProperties") or 0)
        for name in chain(properties, (f"key{number}" for number in range(wanted))):
            if len(made) >= wanted:
                break
            made.setdefault(name, self.make(properties.get(name, True), depth + 1))
        return made

    def _array(self, rules: Mapping[str, Any], depth: int) -> list[object]:
        heads: Sequence[object] = rules.get("prefixItems") or ()
        wanted = max(int(rules.get("minItems") or 0), len(heads))
        items = rules.get("items", True)
        made = [self.make(heads[i] if i < len(heads) else items, depth + 1) for i in range(wanted)]
        if rules.get("uniqueItems"):
            made = [_distinct(value, number) for number, value in enumerate(made)]
        return made


def _merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**left, **right}
    for word in ("properties",):
        joined[word] = {**left.get(word, {}), **right.get(word, {})}
    joined["required"] = [*left.get("required", ()), *right.get("required", ())]
    return joined


def _type_of(rules: Mapping[str, Any]) -> str:
    kind: object = rules.get("type")
    if isinstance(kind, list):
        kind = next((name for name in cast("list[object]", kind) if name != "null"), "null")
    if isinstance(kind, str):
        return kind
    for name, words in _MARKS:
        if any(word in rules for word in words):
            return name
    return "string"


_MARKS = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "multipleOf")),
)

_FORMATS: Mapping[str, str] = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "a@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
}
"""A valid value of each `format`. Source: RFC 3339, RFC 2606, RFC 5737, RFC 3849."""


def _string(rules: Mapping[str, Any], seed: int) -> str:
    if isinstance(pattern := rules.get("pattern"), str):
        return match_of(pattern)
    if made := _FORMATS.get(str(rules.get("format"))):
        return made
    least, most = int(rules.get("minLength") or 0), rules.get("maxLength")
    text = _repeated("abcdefghij"[seed % 10], max(least, 1))
    return text[: int(most)] if most is not None else text


def _number(rules: Mapping[str, Any], *, is_integer: bool) -> int | float:
    step = rules.get("multipleOf") or (1 if is_integer else None)
    low, high = rules.get("minimum"), rules.get("maximum")
    above, below = rules.get("exclusiveMinimum"), rules.get("exclusiveMaximum")
    gap = step or 0.5
    if isinstance(above, int | float) and not isinstance(above, bool):
        low = max(low, above + gap) if low is not None else above + gap
    if isinstance(below, int | float) and not isinstance(below, bool):
        high = min(high, below - gap) if high is not None else below - gap
    value: float = 0
    if low is not None and value < low:
        value = low if step is None else -(-low // step) * step
    if high is not None and value > high:
        value = high if step is None else high // step * step
    if (low is not None and value < low) or (high is not None and value > high):
        raise SchemaError(f"no number between {low} and {high}")
    return int(value) if is_integer or float(value).is_integer() else value


def _distinct(value: object, number: int) -> object:
    if isinstance(value, str):
        return f"{value}{number}" if number else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + number
    return value


def _repeated(text: str, times: int) -> str:
    if len(text) * times > MAX_CHARACTERS:
        raise SchemaError(f"the shortest text has more than {MAX_CHARACTERS} characters")
    return text * times


def match_of(pattern: str) -> str:
    """The smallest text that a regular expression of everyday parts matches.

    Raises: SchemaError where the pattern is none, or uses what this does not know (look-around, back references).
    """
    try:
        compiled = re.compile(pattern)
        parsed: Any = import_module("re._parser").parse(pattern)  # the parts of a pattern have no public form
        made = "".join(_match_part(str(kind), value) for kind, value in parsed)
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaError(f"bad pattern {pattern!r}: {error}") from error
    if not compiled.search(made):
        raise SchemaError(f"no text found for the pattern {pattern!r}")
    return made


def _match_part(kind: str, value: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return "a" if value != ord("a") else "b"
        case "ANY":
            return "a"
        case "IN":
            return _match_set(value)
        case "BRANCH":
            return "".join(_match_part(str(k), v) for k, v in value[1][0])
        case "SUBPATTERN":
            return "".join(_match_part(str(k), v) for k, v in value[-1])
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, _, inner = value
            return _repeated("".join(_match_part(str(k), v) for k, v in inner), least)
        case "AT":
            return ""
        case _:
            raise SchemaError(f"a pattern with {kind.lower()} is not supported")


def _match_set(members: Any) -> str:
    is_negated = str(members[0][0]) == "NEGATE"
    if not is_negated:
        return _first_of(str(members[0][0]), members[0][1])
    for char in "a0 _-Z~":
        if not any(_is_in(char, str(kind), value) for kind, value in members[1:]):
            return char
    raise SchemaError("no character found for a negated set")


def _first_of(kind: str, value: Any) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case _:
            return {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " "}.get(str(value), "a")


def _is_in(char: str, kind: str, value: Any) -> bool:
    match kind:
        case "LITERAL":
            return ord(char) == value
        case "RANGE":
            return value[0] <= ord(char) <= value[1]
        case _:
            return {"CATEGORY_DIGIT": char.isdigit(), "CATEGORY_SPACE": char.isspace()}.get(str(value), char.isalnum())
