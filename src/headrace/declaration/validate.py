"""A tree against the types: every pydantic error becomes a Problem with its line, its value and what is allowed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from headrace.declaration.fields import (
    accepts,
    allowed_names,
    allowed_values,
    bounds_of,
    field_at,
    has_mark,
    section_at,
)
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean, find_nearest
from headrace.declaration.problem import KeyPath, Problem, Severity, dotted, shown_value
from headrace.declaration.yaml_tree import Mapping, Mark, Node, Scalar, Sequence, to_value


class Located:
    """A tree with the name of its file: makes Problems that know their place."""

    def __init__(self, root: Mapping, file: str) -> None:
        self.root = root
        self.file = file

    def problem(
        self, severity: Severity, path: KeyPath, message: str, hint: str | None = None, *, is_about_key: bool = False
    ) -> Problem:
        """Make the problem of the value (or the key itself) at `path`, quoting it unless it may be a secret."""
        mark = self.mark_of(path, is_about_key=is_about_key)
        node = self.node_at(path)
        value = None
        if not is_about_key and isinstance(node, Scalar) and node.text and not has_mark(path, "x-secret"):
            value = shown_value(node.text)
        return Problem(
            severity=severity,
            file=self.file,
            line=mark.line,
            column=mark.column,
            key=dotted(path),
            message=message,
            value=value,
            hint=hint,
        )

    def node_at(self, path: KeyPath) -> Node | None:
        node: Node | None = self.root
        for part in path:
            if isinstance(node, Mapping):
                node = node.entries.get(str(part))
            elif isinstance(node, Sequence) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
            else:
                return None
        return node

    def mark_of(self, path: KeyPath, *, is_about_key: bool = False) -> Mark:
        """Return where `path` is, or the nearest thing above it that is in the file."""
        node = self.node_at(path)
        if node is not None and path:
            parent = self.node_at(path[:-1])
            is_key = is_about_key or not isinstance(node, Scalar)
            if is_key and isinstance(parent, Mapping):
                return parent.key_marks[str(path[-1])]
            return node.mark
        return self.mark_of(path[:-1], is_about_key=True) if path else self.root.mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """What the types make of a tree."""

    declaration: Declaration | None
    """As much of it as is sound; None where nothing can be saved."""
    is_whole: bool
    """Nothing had to be left out."""
    problems: tuple[Problem, ...]


def validate(tree: Located, *, unexpanded: frozenset[KeyPath] = frozenset()) -> Validated:
    """Check `tree` against the types. Values at `unexpanded` are references without a value: they are not judged."""
    _fill_empty_sections(tree.root)
    problems = list(_booleans_as_numbers(tree))
    value = cast("dict[str, Any]", to_value(tree.root))
    try:
        declaration = Declaration.model_validate(value)
    except ValidationError as error:
        details_of = error.errors(include_url=False, include_input=False)
        problems += [_problem(tree, details) for details in details_of if _path_of(details) not in unexpanded]
        return Validated(declaration=_sound_part(value, error), is_whole=False, problems=tuple(problems))
    return Validated(declaration=declaration, is_whole=not problems, problems=tuple(problems))


def _fill_empty_sections(mapping: Mapping, path: KeyPath = ()) -> None:
    """Read `team-a:` with nothing below it as a section in which every key has its default."""
    for key, node in mapping.entries.items():
        here = (*path, key)
        if isinstance(node, Mapping):
            _fill_empty_sections(node, here)
        elif isinstance(node, Scalar) and node.value is None and section_at(here) and not accepts(here, type(None)):
            mapping.entries[key] = Mapping(mark=node.mark)


def _sound_part(value: dict[str, Any], error: ValidationError) -> Declaration | None:
    """Take out what was refused and validate the rest, so that one typo does not hide other problems."""
    for _ in range(3):
        for details in error.errors(include_url=False, include_input=False):
            _take_out(value, details)
        try:
            return Declaration.model_validate(value)
        except ValidationError as next_error:
            error = next_error
    return None


def _take_out(value: Any, details: ErrorDetails) -> None:
    path = _path_of(details)
    if details["type"] == "missing" or (path and isinstance(path[-1], int)):
        path = path[:-1]
    for part in path[:-1]:
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(str(part))
        elif isinstance(value, list) and isinstance(part, int):
            items = cast("list[Any]", value)
            value = items[part] if part < len(items) else None
    if path and isinstance(value, dict):
        cast("dict[str, Any]", value).pop(str(path[-1]), None)


def _path_of(details: ErrorDetails) -> KeyPath:
    return tuple(part for part in details["loc"] if part != "[key]")


def _booleans_as_numbers(tree: Located) -> Iterator[Problem]:
    """`replicas: true` would be read as 1."""
    for path, scalar in iter_scalars(tree.root):
        is_number = accepts(path, int) or accepts(path, float)
        if isinstance(scalar.value, bool) and is_number and not accepts(path, bool):
            yield tree.problem(Severity.ERROR, path, "must be a number", _description(path))


def iter_scalars(node: Node, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Scalar]]:
    """Yield every single value below `node` with its key path."""
    if isinstance(node, Scalar):
        yield path, node
    elif isinstance(node, Mapping):
        for key, child in node.entries.items():
            yield from iter_scalars(child, (*path, key))
    else:
        for number, child in enumerate(node.items):
            yield from iter_scalars(child, (*path, number))


def _problem(tree: Located, details: ErrorDetails) -> Problem:
    path, kind = _path_of(details), details["type"]
    if kind == "extra_forbidden":
        section = section_at(path[:-1])
        hint = did_you_mean(str(path[-1]), section.model_fields) if section is not None else None
        return tree.problem(Severity.ERROR, path, "there is no such key", hint, is_about_key=True)
    if kind == "missing":
        return tree.problem(Severity.ERROR, path, "is missing", _description(path))
    if "[key]" in details["loc"] and (names := allowed_names(path[:-1])):
        message = "must be one of " + ", ".join(names)
        return tree.problem(Severity.ERROR, path, message, did_you_mean(str(path[-1]), names), is_about_key=True)
    if "[key]" in details["loc"]:
        hint = "Letters, digits and . _ : / @ -, beginning with a letter or digit, at most 128."
        return tree.problem(Severity.ERROR, path, "is not a valid name", hint, is_about_key=True)
    node = tree.node_at(path)
    if isinstance(node, Scalar) and node.value is None:
        return tree.problem(Severity.ERROR, path, "has no value", "Give it one, or take the key out.")
    message, hint = _say(path, details, node)
    return tree.problem(Severity.ERROR, path, message, hint)


_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "a mapping (key: value lines, indented)",
    "model_type": "a section (key: value lines, indented)",
    "model_attributes_type": "a section (key: value lines, indented)",
}


def _say(path: KeyPath, details: ErrorDetails, node: Node | None) -> tuple[str, str | None]:
    """Put one pydantic error into our words: message and hint."""
    kind, context = details["type"], details.get("ctx", {})
    field = field_at(path)
    if words := allowed_values(path):
        nearest = find_nearest(node.text, words) if isinstance(node, Scalar) else None
        return "must be one of " + ", ".join(words), f'Did you mean "{nearest}"?' if nearest else _description(path)
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}", _description(path)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"must be {bounds_of(field)}" if field is not None else details["msg"], _description(path)
    if kind == "too_short":
        return "needs at least one entry", _description(path)
    if kind == "string_pattern_mismatch":
        is_checksum = path[-1:] == ("sha256",)
        return ("must be 64 hexadecimal digits in lower case" if is_checksum else "is not a valid name"), None
    if kind == "value_error":
        return str(context.get("error", details["msg"])), None
    return details["msg"], _description(path)


def _description(path: KeyPath) -> str | None:
    field = field_at(path)
    return field.description if field is not None else None
