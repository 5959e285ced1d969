"""`--set key.path=value`: a value put into the tree of a declaration before it is checked, as if the file had it."""

from collections.abc import Sequence

from headrace.declaration.nearest import did_you_mean
from headrace.declaration.problem import DeclarationError, Problem, Severity
from headrace.declaration.yaml_tree import Mapping, Mark, Node, Scalar, YamlSyntaxError, read_tree
from headrace.domain.operator_error import WrongUsageError


class OverrideError(DeclarationError, WrongUsageError):
    """A `--set` that is none."""


NAMED_SECTIONS = ("models", "pools", "tenants")
"""Sections whose members have names of the operator's: `--set` changes members, and makes none."""

EXAMPLE = "Write, for example, --set pools.main.engine=sglang."

NOWHERE = Mark(0, 0)
"""The mark of what no file holds."""


def apply_overrides(root: Mapping, overrides: Sequence[str]) -> None:
    """Put each `key.path=value` into `root`; a later one wins.

    Raises: DeclarationError.
    """
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key.strip("."):
            raise OverrideError([_problem(text, "is not KEY.PATH=VALUE", EXAMPLE)])
        _put(root, _parts(key), _read_value(text, value), text)


def _parts(key: str) -> list[str]:
    """Split at dots; a quoted part keeps its dots."""
    parts: list[str] = []
    for number, piece in enumerate(key.split('"')):
        if number % 2:
            parts.append(piece)
        else:
            parts += [part for part in piece.split(".") if part]
    return parts


def _read_value(text: str, value: str) -> Node:
    """Read the value as YAML; nothing is null."""
    try:
        node = read_tree(value)
    except YamlSyntaxError as error:
        raise OverrideError([_problem(text, error.slips[0].message, "Quote the value as YAML wants it.")]) from error
    if node is None:
        return Scalar(mark=NOWHERE, text="", value=None)
    _forget_marks(node)
    return node


def _put(root: Mapping, parts: list[str], value: Node, text: str) -> None:
    mapping, depth = root, 0
    while True:
        key, used = _next_key(mapping, parts[depth:])
        if depth == 1 and parts[0] in NAMED_SECTIONS and key not in mapping.entries:
            hint = did_you_mean(".".join(parts[1:]), mapping.entries)
            raise _error(text, f"there is no {parts[0].removesuffix('s')} of that name", hint)
        depth += used
        if depth == len(parts):
            mapping.entries[key] = value
            mapping.key_marks[key] = NOWHERE
            return
        child = mapping.entries.get(key)
        if not isinstance(child, Mapping):
            child = Mapping(mark=NOWHERE)
            mapping.entries[key] = child
            mapping.key_marks[key] = NOWHERE
        mapping = child


def _next_key(mapping: Mapping, parts: list[str]) -> tuple[str, int]:
    """Take the longest run of parts that is a key here, since names may hold dots."""
    for end in range(len(parts), 0, -1):
        if (key := ".".join(parts[:end])) in mapping.entries:
            return key, end
    return parts[0], 1


def _forget_marks(node: Node) -> None:
    node.mark = NOWHERE
    if isinstance(node, Mapping):
        for key, child in node.entries.items():
            node.key_marks[key] = NOWHERE
            _forget_marks(child)
    elif not isinstance(node, Scalar):
        for child in node.items:
            _forget_marks(child)


def _error(text: str, message: str, hint: str | None) -> DeclarationError:
    return DeclarationError([_problem(text, message, hint)])


def _problem(text: str, message: str, hint: str | None) -> Problem:
    name = f"--set {text if len(text) <= 80 else text[:77] + '...'}"
    return Problem(severity=Severity.ERROR, file=name, line=0, column=0, key="", message=message, hint=hint)
