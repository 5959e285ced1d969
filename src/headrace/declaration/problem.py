"""What is wrong with a declaration, where, and what to do: one Problem each, all of them in one DeclarationError."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.domain.operator_error import OperatorError

KeyPath = tuple[str | int, ...]
"""Way from the top of headrace.yaml to one value, such as ("pools", "chat", "endpoints", 0)."""


class Severity(StrEnum):
    """ERROR stops the start and refuses the reload; WARNING is only said."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing an operator should look at."""

    severity: Severity
    file: str
    line: int
    """1-based; 0 where there is no file."""
    column: int
    """1-based; 0 where there is no file."""
    key: str
    """Dotted key path; empty for the file as a whole."""
    message: str
    value: str | None = None
    """The value as the file has it, never a secret's; None where it would say nothing."""
    hint: str | None = None
    """What is allowed, or what to do."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f"{self.key}: " if self.key else ""
        value = f" (found {self.value})" if self.value is not None else ""
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{place}: {self.severity.value}: {key}{self.message}{value}{hint}"


class DeclarationError(OperatorError):
    """A declaration cannot be used. `problems` holds all that was found, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        errors = sum(problem.severity is Severity.ERROR for problem in self.problems)
        what = "1 error" if errors == 1 else f"{errors} errors"
        super().__init__("\n".join([f"the declaration cannot be used: {what}", *map(str, self.problems)]))


def dotted(path: KeyPath) -> str:
    """Write a key path as people do: pools.chat.endpoints[0]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]*@")
_NAMED_SECRET = re.compile(r"((?:api[-_]?key|token|secret|password|bearer)[=:\s]+)[^\s,]+", re.IGNORECASE)


def shown_value(text: str) -> str:
    """Quote `text` for a message: bounded, on one line, without the login part of a URL or what looks like a secret."""
    plain = _NAMED_SECRET.sub(r"\1(hidden)", _URL_LOGIN.sub("(hidden)@", text))
    plain = "".join(char if char.isprintable() else " " for char in plain)
    return '"' + (plain if len(plain) <= 80 else plain[:77] + "...") + '"'
