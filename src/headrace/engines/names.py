"""Old names of engines' metrics, flags and commands, and what they are today: so that a message can explain instead of
saying "unknown". Tables are in `engines/<engine>/names.py`; each row was looked up in the sources of both versions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import cast

from headrace.domain.endpoint import EngineKind


class NameKind(StrEnum):
    """What a name names."""

    METRIC = "metric"
    FLAG = "flag"
    COMMAND = "command"
    FIELD = "field"
    """A key of a JSON answer or of a configuration file."""


class Change(StrEnum):
    """What became of it."""

    RENAMED = "renamed"
    """The same thing under another name."""
    REPLACED = "replaced"
    """Another thing does its work; values or units may differ."""
    REMOVED = "removed"
    """Nothing does its work any more."""
    NEVER = "never"
    """No version that was read had it under this name; it is asked for nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldName:
    """One name of the past."""

    engine: EngineKind
    kind: NameKind
    old: str
    now: tuple[str, ...] = ()
    """Installed names that take its place, the nearest first; empty where nothing does."""
    change: Change = Change.RENAMED
    last: str
    """Newest version read that still has it."""
    gone: str
    """Oldest version read without it, or in which it is deprecated."""
    note: str = ""
    source: str
    """File of both versions, where not said otherwise."""

    def explain(self) -> str:
        """Say in one sentence what became of it."""
        names = " and ".join(self.now)
        said = {
            Change.RENAMED: f"was renamed to {names} by {self.gone}",
            Change.REPLACED: f"was replaced by {names} by {self.gone}",
            Change.REMOVED: f"is gone since {self.gone}",
            Change.NEVER: f"is no name of this engine; use {names}" if names else "is no name of this engine",
        }[self.change]
        return f"{self.old} {said}" + (f": {self.note}" if self.note else "")


TABLES: Mapping[EngineKind, str] = MappingProxyType(
    {
        EngineKind.VLLM: "headrace.engines.vllm.names",
        EngineKind.SGLANG: "headrace.engines.sglang.names",
        EngineKind.TENSORRT_LLM: "headrace.engines.tensorrt_llm.names",
        EngineKind.LLAMACPP: "headrace.engines.llamacpp.names",
    }
)
"""Engine -> module with its `OLD_NAMES`, imported on use."""


@cache
def old_names(engine: EngineKind) -> tuple[OldName, ...]:
    """Return every old name of `engine`."""
    module = TABLES.get(engine)
    return () if module is None else cast("tuple[OldName, ...]", import_module(module).OLD_NAMES)


def find_old_name(name: str, engine: EngineKind | None = None) -> OldName | None:
    """Return what became of `name`, in whichever spelling it is met.

    1. A flag with `_` for `-` or with `=value` is the same flag.
    2. A metric with `_` for the `:` after the engine's prefix, as collectors rewrite it, is the same metric.
    3. A metric with or without `_total`, `_bucket`, `_sum` or `_count` is the same metric.
    """
    wanted = _folded(name)
    for kind in [engine] if engine is not None else list(TABLES):
        for row in old_names(kind):
            if _folded(row.old) == wanted:
                return row
    return None


def explain(name: str, engine: EngineKind | None = None) -> str | None:
    """Say what became of `name`; None where it is not an old name."""
    found = find_old_name(name, engine)
    return None if found is None else found.explain()


def iter_old_names() -> Iterator[OldName]:
    """Yield the old names of every engine."""
    for engine in TABLES:
        yield from old_names(engine)


_ENDINGS = ("_total", "_bucket", "_sum", "_count")


def _folded(name: str) -> str:
    name = name.strip()
    if name.startswith("-"):
        return "-" + name.partition("=")[0].lstrip("-").replace("_", "-")
    folded = name.replace(":", "_")
    for ending in _ENDINGS:
        folded = folded.removesuffix(ending)
    return folded
