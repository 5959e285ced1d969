"""`headrace check`: what is wrong with a declaration, without starting anything."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options import ConfigOption, JsonOption, SetOption, verb_app
from headrace.cli.output import EXIT_PROBLEMS, emit
from headrace.declaration.load import BUILTIN_NAME, find_declaration, load_declaration
from headrace.declaration.problem import DeclarationError, Problem, Severity
from headrace.engines.declared import lint_engines

app = verb_app()

ElsewhereOption = Annotated[
    bool,
    typer.Option(
        "--elsewhere", help="Another machine will run it: secrets and files that are missing here are only warnings."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `headrace check --json` prints."""

    file: str | None
    """None: the built-in declaration."""
    is_valid: bool
    errors: int
    warnings: int
    problems: tuple[Problem, ...]


@app.command(epilog="Example: headrace check --config headrace.yaml --elsewhere")
def check(
    config: ConfigOption = None,
    overrides: SetOption = None,
    is_elsewhere: ElsewhereOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check a declaration without starting anything.

    Prints each problem with its file, line and key. Exits with 0 where nothing or only warnings were found, with 3
    where the declaration cannot be used.
    """
    path = find_declaration(config, environ=os.environ)
    try:
        problems = load_declaration(
            path, environ=os.environ, is_elsewhere=is_elsewhere, overrides=overrides or (), checks=lint_engines
        ).warnings
    except DeclarationError as error:
        problems = error.problems
    errors = sum(problem.severity is Severity.ERROR for problem in problems)
    report = CheckReport(
        file=None if path is None else str(path),
        is_valid=errors == 0,
        errors=errors,
        warnings=len(problems) - errors,
        problems=problems,
    )
    emit("check", report, as_json=as_json, human=lambda: _text(path, problems, errors))
    if errors:
        raise typer.Exit(EXIT_PROBLEMS)


def _text(path: Path | None, problems: tuple[Problem, ...], errors: int) -> str:
    name = BUILTIN_NAME if path is None else str(path)
    if not problems:
        return f"{name}: nothing to complain about"
    counts = f"{_counted(errors, 'error')}, {_counted(len(problems) - errors, 'warning')}"
    return "\n".join([*map(str, problems), f"{name}: {counts}"])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
