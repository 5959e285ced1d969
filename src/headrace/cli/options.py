"""Options that several verbs share, declared once."""

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The declaration; default: ./headrace.yaml, else $HEADRACE_CONFIG, else the built-in one.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY.PATH=VALUE",
        help="Use this value instead of the file's, such as pools.main.engine=sglang; repeat for more.",
    ),
]
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to FILE.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON with a versioned schema instead of tables.")]


def verb_app() -> typer.Typer:
    """Return the Typer instance of one verb: `app = verb_app()`, then `@app.command(epilog="Example: ...")`."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
