"""The keys of headrace.yaml, seen from outside: which section or field a key path leads to, and a list of all of them.

Read from the pydantic types, so that messages, docs/settings.md, `headrace init` and diffs cannot disagree with them.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headrace.declaration.model import Declaration
from headrace.declaration.problem import KeyPath
from headrace.declaration.shape import Section, is_secret_name

SectionType = type[Section]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDoc:
    """One key as docs/settings.md shows it."""

    key: str
    """Such as `pools.<name>.probe.interval_s`."""
    type_text: str
    unit: str
    bounds: str
    default_text: str
    description: str
    needs_restart: bool
    is_secret: bool


def section_at(path: KeyPath) -> SectionType | None:
    """Return the section type that `path` leads to, None where it leads to a value or nowhere."""
    annotation = _annotation_at(path)
    return _section_in(annotation) if annotation is not None else None


def field_at(path: KeyPath) -> FieldInfo | None:
    """Return the field that `path` leads to or into: the last one on the way that is declared in a section."""
    section: SectionType | None = Declaration
    found: FieldInfo | None = None
    annotation: Any = Declaration
    for part in path:
        section = _section_in(annotation)
        if section is not None:
            found = section.model_fields.get(str(part))
            if found is None:
                return None
            annotation = found.annotation
        else:
            annotation = _member_of(annotation)
    return found


def has_mark(path: KeyPath, mark: str) -> bool:
    """Tell whether a key on the way of `path` carries `mark` ("x-restart", "x-secret", "x-path")."""
    if any(_extra(field_at(path[:end])).get(mark) is True for end in range(1, len(path) + 1)):
        return True
    is_named = has_mark(path[:-1], "x-secret-names") if mark == "x-secret" and path else False
    return is_named and is_secret_name(str(path[-1]))


def accepts(path: KeyPath, kind: type) -> bool:
    """Tell whether the key at `path` may hold a `kind` as such (asked for bool, which pydantic takes for a number)."""
    annotation = _annotation_at(path)
    return annotation is not None and kind in _alternatives(annotation)


def allowed_values(path: KeyPath) -> tuple[str, ...]:
    """Return the words that the key at `path` takes, where they are a closed list."""
    annotation = _annotation_at(path)
    return _words(annotation) if annotation is not None else ()


def allowed_names(path: KeyPath) -> tuple[str, ...]:
    """Return the names that members of the mapping at `path` may have, where they are a closed list."""
    for part in _alternatives(_annotation_at(path)):
        if get_origin(part) is dict:
            return _words(get_args(part)[0])
    return ()


def iter_key_docs() -> Iterator[KeyDoc]:
    """Yield every key of headrace.yaml in the order of the types."""
    yield from _docs_of(Declaration, "", is_restart=False)


def _docs_of(section: SectionType, prefix: str, *, is_restart: bool) -> Iterator[KeyDoc]:
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        restart = is_restart or _extra(field).get("x-restart") is True
        child = _section_in(field.annotation)
        named = _section_in(_member_of(field.annotation)) if child is None else None
        is_repeated = _extra(field).get("x-as-above") is True
        yield KeyDoc(
            key=key,
            type_text=_type_text(field.annotation),
            unit=unit_of(name),
            bounds=bounds_of(field),
            default_text=_default_text(field, is_section=child is not None or named is not None),
            description=field.description or "",
            needs_restart=restart,
            is_secret=_extra(field).get("x-secret") is True,
        )
        if is_repeated:
            continue
        if child is not None:
            yield from _docs_of(child, f"{key}.", is_restart=restart)
        elif named is not None:
            yield from _docs_of(named, f"{key}.<name>.", is_restart=restart)


UNIT_OF_SUFFIX: Mapping[str, str] = types.MappingProxyType(
    {
        "_per_min": "per minute",
        "_s": "seconds",
        "_bytes": "bytes",
        "_tokens": "tokens",
        "_ratio": "ratio, 0 to 1",
        "_records": "records",
        "_requests": "requests",
        "_attempts": "attempts",
        "_files": "files",
    }
)
"""Units by the last part of a key's name (STYLE: units are in the names)."""


def unit_of(name: str) -> str:
    """Return the unit that a key's name carries, "" where it has none."""
    return next((unit for suffix, unit in UNIT_OF_SUFFIX.items() if name.endswith(suffix)), "")


def bounds_of(field: FieldInfo) -> str:
    """Say in words which numbers a field takes, such as "1 to 64"; "" where it is no bounded number."""
    low = high = ""
    for rule in field.metadata:
        if (bound := getattr(rule, "ge", None)) is not None:
            low = f"{bound:g}" if isinstance(bound, float) else f"{bound}"
        if (bound := getattr(rule, "gt", None)) is not None:
            low = f"above {bound:g}"
        if (bound := getattr(rule, "le", None)) is not None:
            high = f"{bound}"
        if (bound := getattr(rule, "lt", None)) is not None:
            high = f"below {bound}"
    if low and high:
        return f"{low} to {high}"
    return f"{low} or more" if low and not low.startswith("above") else low or (f"up to {high}" if high else "")


def _annotation_at(path: KeyPath) -> Any:
    annotation: Any = Declaration
    for part in path:
        section = _section_in(annotation)
        if section is not None:
            field = section.model_fields.get(str(part))
            annotation = field.annotation if field is not None else None
        else:
            annotation = _member_of(annotation)
        if annotation is None:
            return None
    return annotation


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Split `X | None` into its parts; anything else is its only part."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(part for member in get_args(annotation) for part in _alternatives(member))
    return (annotation,)


def _section_in(annotation: Any) -> SectionType | None:
    for part in _alternatives(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def _member_of(annotation: Any) -> Any:
    """Return the type of a mapping's values or a list's items, None for anything else."""
    for part in _alternatives(annotation):
        origin, args = get_origin(part), get_args(part)
        if origin is dict:
            return args[1]
        if origin in (tuple, list):
            return args[0]
    return None


def _words(annotation: Any) -> tuple[str, ...]:
    words: list[str] = []
    for part in _alternatives(annotation):
        if get_origin(part) is Literal:
            words += [str(word) for word in get_args(part)]
        elif isinstance(part, type) and issubclass(part, Enum):
            words += [str(member.value) for member in part]
    return tuple(words)


def _extra(field: FieldInfo | None) -> dict[str, Any]:
    extra = field.json_schema_extra if field is not None else None
    return cast("dict[str, Any]", extra) if isinstance(extra, dict) else {}


_TYPE_WORDS = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def _type_text(annotation: Any) -> str:
    if words := _words(annotation):
        return ", ".join(words) + (", null" if type(None) in _alternatives(annotation) else "")
    texts: list[str] = []
    for part in _alternatives(annotation):
        origin, args = get_origin(part), get_args(part)
        if origin is dict:
            texts.append(f"mapping of {_type_text(args[1])}s" if _section_in(args[1]) is None else "mapping by name")
        elif origin in (tuple, list):
            texts.append(f"list of {_type_text(args[0])}s")
        elif isinstance(part, type) and issubclass(part, Section):
            texts.append("section")
        else:
            texts.append(_TYPE_WORDS.get(cast("type", part), "value"))
    return " or ".join(texts)


def _default_text(field: FieldInfo, *, is_section: bool) -> str:
    if field.is_required():
        return "required"
    default: object = field.get_default()
    if default is PydanticUndefined or (is_section and default is not None):
        return ""
    if default is None:
        return "null"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, tuple):
        members = cast("tuple[object, ...]", default)
        return "[" + ", ".join(f'"{member}"' if member == "*" else str(member) for member in members) + "]"
    if isinstance(default, dict):
        return "{}"
    return f"{default:g}" if isinstance(default, float) else str(default)
