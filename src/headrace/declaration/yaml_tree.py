"""YAML text -> a tree whose every value knows its line, read within bounds and without surprises.

Own composer over PyYAML's events: duplicate keys, tags and several documents are refused, aliases and depth are
bounded, and plain scalars follow YAML 1.2 (`no` and `on` are text, `010` is ten).
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import yaml

FILE_BYTES = 1_048_576
"""Largest declaration. Far above real ones; keeps a wrong file (a model, a log) from being parsed."""
MAX_DEPTH = 24
"""Nesting. headrace.yaml needs 6."""
MAX_NODES = 100_000
"""Values after aliases are expanded: bounds what a few lines of nested aliases can grow into."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the file, 1-based."""

    line: int
    column: int


@dataclass(slots=True, kw_only=True)
class Scalar:
    """A single value. `value` is what validation sees, `text` what the file has."""

    mark: Mark
    text: str
    value: str | int | float | bool | None


@dataclass(slots=True, kw_only=True)
class Sequence:
    mark: Mark
    items: list["Node"] = field(default_factory=list["Node"])


@dataclass(slots=True, kw_only=True)
class Mapping:
    mark: Mark
    entries: dict[str, "Node"] = field(default_factory=dict[str, "Node"])
    key_marks: dict[str, Mark] = field(default_factory=dict[str, Mark])
    merged: set[str] = field(default_factory=set[str])
    """Keys that came by `<<` and that a key of the mapping itself may still override."""


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Slip:
    """Something wrong with the text itself."""

    mark: Mark
    message: str
    hint: str | None = None


class YamlSyntaxError(Exception):
    """The text cannot be read as one tree. Holds every slip found up to where reading had to stop."""

    def __init__(self, slips: list[Slip]) -> None:
        super().__init__("; ".join(slip.message for slip in slips))
        self.slips = slips


def read_tree(text: str) -> Node | None:
    """Read `text`; None where it holds nothing.

    Raises: YamlSyntaxError.
    """
    composer = _Composer()
    try:
        for event in _events(text):
            composer.feed(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "unreadable"
        composer.slips.append(
            Slip(_mark(mark), f"not valid YAML: {said}", _syntax_hint(said, _char_at(text, _mark(mark))))
        )
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        composer.slips.append(Slip(Mark(1, 1), f"not valid YAML: {' '.join(str(error).split())[:200]}"))
    except _StopReadingError:
        pass
    if composer.slips:
        raise YamlSyntaxError(composer.slips)
    return composer.root


def to_value(node: Node) -> Any:
    """Return the tree's plain Python values."""
    if isinstance(node, Mapping):
        return {key: to_value(child) for key, child in node.entries.items()}
    if isinstance(node, Sequence):
        return [to_value(child) for child in node.items]
    return node.value


class _StopReadingError(Exception):
    """A bound was passed: what follows is not looked at."""


def _events(text: str) -> Iterator[Any]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast("Iterator[Any]", yaml.parse(text, Loader=loader))


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)


def _char_at(text: str, mark: Mark) -> str:
    lines = text.split("\n")
    return lines[mark.line - 1][mark.column - 1 : mark.column] if mark.line <= len(lines) else ""


_SYNTAX_HINTS = (
    ("mapping values are not allowed", "Check the indentation, and quote texts that contain `: `."),
    ("expected ':'", "A key needs a colon and a space after it."),
    ("unexpected end of stream", "A quote is opened and never closed."),
    ("unknown escape character", "Within double quotes a backslash is written twice; single quotes take it as it is."),
    ("block sequence entries are not allowed", "A list begins on a line of its own, below its key."),
    ("expected key", "Keys of one section stand in one column."),
    ("expected '-' indicator", "Entries of one list each begin with `- `, in one column."),
    ("expected ',' or", "`[` and `{` need a comma between entries, and their closing `]` or `}`."),
)
"""Words of PyYAML and libyaml -> what is usually meant."""


def _syntax_hint(said: str, char: str) -> str | None:
    """`char` is what stands where reading stopped."""
    if char == "\t":
        return "There is a tab: indent with spaces."
    if char in ("@", "`", "%"):
        return f"Quote a text that begins with {char}."
    return next((hint for words, hint in _SYNTAX_HINTS if words in said), None)


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    node: Sequence | Mapping
    anchor: str | None
    key: str | None = None
    """In a mapping: the key whose value comes next."""
    key_mark: Mark | None = None
    size: int = 1


class _Composer:
    def __init__(self) -> None:
        self.root: Node | None = None
        self.slips: list[Slip] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._documents = 0
        self._nodes = 0

    def feed(self, event: Any) -> None:
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                self._stop(mark, "a second document begins here", "Keep everything in one document, without `---`.")
        elif isinstance(event, yaml.ScalarEvent):
            self._check_tag(event, mark)
            text = str(event.value)
            if "\0" in text:
                self.slips.append(Slip(mark, "holds the character NUL, which no program can be given"))
            is_plain = event.style in (None, "")
            value = plain_value(text) if is_plain and event.tag is None else text
            self._add(Scalar(mark=mark, text=text, value=value), event.anchor, mark, 1)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(str(event.anchor), mark)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._check_tag(event, mark)
            node = Sequence(mark=mark) if isinstance(event, yaml.SequenceStartEvent) else Mapping(mark=mark)
            if len(self._stack) >= MAX_DEPTH:
                self._stop(mark, f"nested deeper than {MAX_DEPTH} levels")
            self._stack.append(_Open(node, event.anchor))
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            closed = self._stack.pop()
            self._add(closed.node, closed.anchor, closed.node.mark, closed.size)

    def _stop(self, mark: Mark, message: str, hint: str | None = None) -> NoReturn:
        self.slips.append(Slip(mark, message, hint))
        raise _StopReadingError

    def _check_tag(self, event: Any, mark: Mark) -> None:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            self.slips.append(Slip(mark, "YAML tags are not used here", "Write the plain value, without the `!` tag."))

    def _alias(self, name: str, mark: Mark) -> None:
        if any(opened.anchor == name for opened in self._stack):
            self._stop(mark, f"the alias *{name} stands inside the value it repeats")
        if name not in self._anchors:
            self._stop(mark, f"the alias *{name} has no anchor &{name} before it")
        node, size = self._anchors[name]
        self._add(node, None, mark, size)

    def _add(self, node: Node, anchor: str | None, mark: Mark, size: int) -> None:
        """Put a complete value where it belongs, and remember it under its anchor."""
        self._nodes += 1
        if self._nodes > MAX_NODES or size > MAX_NODES:
            self._stop(mark, f"more than {MAX_NODES} values (aliases expanded)")
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._stack:
            self.root = node
            return
        parent = self._stack[-1]
        parent.size += size
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
        elif parent.key is None:
            self._take_key(parent, node, mark)
        else:
            self._take_value(parent, parent.node, node)

    def _take_key(self, parent: _Open, node: Node, mark: Mark) -> None:
        if not isinstance(node, Scalar):
            self._stop(mark, "a key must be a plain word", "`{` and `[` at the start of a text need quotes.")
        parent.key, parent.key_mark = node.text, mark

    def _take_value(self, parent: _Open, mapping: Mapping, node: Node) -> None:
        key, mark = cast("str", parent.key), cast("Mark", parent.key_mark)
        parent.key = parent.key_mark = None
        if key == "<<":
            self._merge(mapping, node, mark)
        elif key in mapping.entries and key not in mapping.merged:
            first = mapping.key_marks[key].line
            self.slips.append(Slip(mark, f'the key "{key}" is given twice', f"It is already on line {first}."))
        else:
            mapping.entries[key] = node
            mapping.key_marks[key] = mark
            mapping.merged.discard(key)

    def _merge(self, mapping: Mapping, node: Node, mark: Mark) -> None:
        for source in node.items if isinstance(node, Sequence) else [node]:
            if not isinstance(source, Mapping):
                self.slips.append(Slip(mark, "<< takes an alias of a mapping, or a list of them"))
                continue
            for key, value in source.entries.items():
                if key not in mapping.entries:
                    mapping.entries[key] = value
                    mapping.key_marks[key] = source.key_marks[key]
                    mapping.merged.add(key)


_INT = re.compile(r"[-+]?[0-9]{1,18}")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]{1,18}|0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def plain_value(text: str) -> str | int | float | bool | None:
    """Read an unquoted scalar by the core schema of YAML 1.2; `.inf` and `.nan` stay text, as no setting takes them."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL_OR_HEX.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
