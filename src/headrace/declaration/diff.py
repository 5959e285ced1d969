"""What changes between two declarations: what `headrace reload` says and does. Secrets are compared, never shown."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

from headrace.declaration.fields import field_at, has_mark
from headrace.declaration.model import Declaration
from headrace.declaration.problem import KeyPath, dotted
from headrace.declaration.shape import HIDDEN

NAMED_SECTIONS = ("models", "pools", "tenants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key whose value differs. A list counts as one value."""

    path: str
    """Such as pools.chat.threads."""
    before: str | None
    """None: the key was not there (an added pool, model or tenant)."""
    after: str | None
    """None: the key is gone."""
    needs_restart: bool
    """A reload cannot apply it."""

    def __str__(self) -> str:
        restart = "  (needs a restart)" if self.needs_restart else ""
        if self.before is None:
            return f"+ {self.path}: {self.after}{restart}"
        if self.after is None:
            return f"- {self.path}: {self.before}{restart}"
        return f"~ {self.path}: {self.before} -> {self.after}{restart}"


def diff(before: Declaration, after: Declaration) -> tuple[Change, ...]:
    """Return the changes from `before` to `after`, in the order of the file's keys.

    A model, pool or tenant that came or went is one change, with its settings that differ from the defaults.
    """
    old, new = before.model_dump(), after.model_dump()
    came_or_went = [
        (section, name)
        for section in NAMED_SECTIONS
        for name in dict.fromkeys([*old[section], *new[section]])
        if (name in old[section]) != (name in new[section])
    ]
    changes = list(_leaf_changes(dict(_leaves(old)), dict(_leaves(new)), frozenset(came_or_went)))
    for section, name in came_or_went:
        change = Change(
            path=dotted((section, name)),
            before=_summary((section, name), old[section].get(name)),
            after=_summary((section, name), new[section].get(name)),
            needs_restart=False,
        )
        changes.append(change)
    return tuple(changes)


def _leaf_changes(
    old: dict[KeyPath, object], new: dict[KeyPath, object], came_or_went: frozenset[KeyPath]
) -> Iterator[Change]:
    for path in dict.fromkeys([*old, *new]):
        if path[:2] in came_or_went or (path in old and path in new and old[path] == new[path]):
            continue
        if _is_opened(path, old, new) or _is_opened(path, new, old):
            continue
        yield Change(
            path=dotted(path),
            before=_shown(path, old[path]) if path in old else None,
            after=_shown(path, new[path]) if path in new else None,
            needs_restart=has_mark(path, "x-restart"),
        )


def _is_opened(path: KeyPath, here: dict[KeyPath, object], there: dict[KeyPath, object]) -> bool:
    """Tell whether `path` is null here and a section there: its keys say what changes."""
    return path in here and here[path] is None and any(other[: len(path)] == path != other for other in there)


def _summary(path: KeyPath, section: dict[str, object] | None) -> str | None:
    """Write a whole section on one line, without the keys that are as by default."""
    if section is None:
        return None
    words: list[str] = []
    for leaf, value in _leaves(section, path):
        field = field_at(leaf)
        if field is None or field.is_required() or field.get_default() != value:
            words.append(f"{dotted(leaf[2:])}: {_shown(leaf, value)}")
    return "{" + ", ".join(words) + "}"


def _leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Yield the single values and lists; an empty mapping is no leaf (it says nothing)."""
    if isinstance(value, dict):
        for key, child in cast("dict[str, Any]", value).items():
            yield from _leaves(child, (*path, key))
    else:
        yield path, value


def _shown(path: KeyPath, value: object) -> str:
    if has_mark(path, "x-secret") and value is not None:
        return HIDDEN
    if value is None:
        return "null"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in cast("tuple[object, ...]", value)) + "]"
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
