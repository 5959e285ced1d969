"""What every verb prints through: tables for people, versioned JSON for programs, errors on stderr.

Exit codes: 0 done, 1 failed, 2 wrong usage (a name that there is nothing of, too), 3 a check found problems.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from headrace.cli.fit_table import FitTable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PROBLEMS = 3

NOT_MEASURED = "not measured"
"""In a cell: there is no number, and 0 would be another one. A column of nothing else is the first to go where the
screen is narrow, and that it was not measured is said once."""

PIPE_WIDTH = 1000
"""Columns where the output is no terminal: wide enough that `grep` finds whole rows."""


def emit(
    verb: str,
    value: object,
    *,
    as_json: bool,
    human: "RenderableType | Callable[[], RenderableType] | None" = None,
) -> None:
    """Print the result of `verb`: `{"schema": "headrace/<verb>/v1", "data": value}`, or `human` for a person.

    `value` is made of JSON values, dataclasses, msgspec structs or pydantic models; its type stands in
    `schema.PRINTED`. `human` is text, a rich renderable or a function that makes one (called only when needed); None
    prints nothing. Text is written as it is: its lines may be commands to paste, so a terminal may wrap them, but
    nothing here does.
    """
    if as_json:
        print(json_text({"schema": f"headrace/{verb}/v1", "data": value}))
    elif human is not None:
        shown = human() if callable(human) else human
        if isinstance(shown, str):
            print(shown)
        else:
            console().print(shown, crop=False)


def emit_line(verb: str, value: object) -> None:
    """Print one compact JSON line of a stream of results (`logs --json -f`)."""
    line = {"schema": f"headrace/{verb}/v1", "data": value}
    print(msgspec.json.encode(line, enc_hook=_encode).decode(), flush=True)


def json_text(value: object) -> str:
    """Render `value` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode), indent=2).decode()


def compact_text(value: object) -> str:
    """Render `value` as JSON on one line; a text stands as it is."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_encode).decode()


def console(*, stderr: bool = False) -> "Console":
    """Return the console to print on: colours only on a terminal and without NO_COLOR, full width in pipes."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    expendable: Sequence[str] = (),
    is_dense: bool = False,
) -> "FitTable":
    """Make a plain table; None in a cell reads "-". Columns name their units, such as "age s".

    The first column names the row. Where the screen is too narrow, the columns named in `expendable` are left out, the
    first one first; where that does not do, each row becomes a block of lines. `is_dense`: its cells are numbers and
    single words, which may stand one space apart.
    """
    from headrace.cli.fit_table import FitTable

    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    return FitTable(columns, cells, title, expendable, is_dense=is_dense)


def show_error(message: str, *, hint: str | None = None) -> None:
    """Print a failure and what to do about it on stderr."""
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text("error: ", style="bold red").append(message, style="not bold default"), soft_wrap=True)
    if hint:
        out.print(Text(hint, style="dim"), soft_wrap=True)


def fail(message: str, *, hint: str | None = None, code: int = EXIT_FAILED) -> NoReturn:
    """End the command: print `message` on stderr and exit with `code`."""
    show_error(message, hint=hint)
    raise typer.Exit(code)


def _encode(value: Any) -> object:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, os.PathLike):
        return os.fspath(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")
