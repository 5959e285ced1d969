"""What is wrong or doubtful with a declaration, before its line is known. Made by `lint.py`, placed by `load.py`."""

from dataclasses import dataclass

from headrace.declaration.problem import KeyPath, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A Problem that does not know its line yet."""

    path: KeyPath
    severity: Severity
    message: str
    hint: str | None = None
    is_about_this_machine: bool = False
    """The declaration may be right and this machine the wrong one (a file that is not here)."""


def error(path: KeyPath, message: str, hint: str | None = None, *, is_about_this_machine: bool = False) -> Finding:
    """Something that must be mended."""
    return Finding(
        path=path,
        severity=Severity.ERROR,
        message=message,
        hint=hint,
        is_about_this_machine=is_about_this_machine,
    )


def warning(path: KeyPath, message: str, hint: str | None = None) -> Finding:
    """Something that is likely not meant."""
    return Finding(path=path, severity=Severity.WARNING, message=message, hint=hint)
