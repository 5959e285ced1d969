"""One finding of the preflight."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding stands in the way."""

    OK = "ok"
    WARN = "warn"
    """It will run, but slower, or something could not be seen."""
    FAIL = "fail"
    """It will not run, or not as declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, seen and needed, and what mends it."""

    code: str
    """Stable name of the check, as in docs/preflight.md."""
    level: Level
    seen: str
    needed: str = ""
    remedy: str = ""
    """The declaration's key, engine's flag or command that mends it; empty where nothing is wrong."""


def ok(code: str, seen: str) -> Finding:
    return Finding(code=code, level=Level.OK, seen=seen)


def warn(code: str, seen: str, *, needed: str = "", remedy: str = "") -> Finding:
    return Finding(code=code, level=Level.WARN, seen=seen, needed=needed, remedy=remedy)


def fail(code: str, seen: str, *, needed: str, remedy: str) -> Finding:
    return Finding(code=code, level=Level.FAIL, seen=seen, needed=needed, remedy=remedy)
