"""The `headrace` command: a table of verbs, each imported only when it is used.

A verb is one thin module in this folder with a Typer instance `app`: it parses, calls one service and prints through
`output.emit`. Failures that an operator can mend are `OperatorError`s; anything else is reported as a bug.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from headrace import __version__
from headrace.domain.operator_error import OperatorError, WrongUsageError

RUN, GOVERN, DESCRIBE = "Run", "Govern", "Describe"


@dataclass(frozen=True, slots=True)
class Verb:
    """One row of the table."""

    target: str
    """`module:attribute` of a Typer instance."""
    line: str
    """What `headrace --help` says about it."""
    panel: str


VERBS = MappingProxyType(
    {
        "init": Verb("headrace.cli.init:app", "Write a commented first headrace.yaml.", DESCRIBE),
        "check": Verb("headrace.cli.check:app", "Check a declaration and the machine, starting nothing.", DESCRIBE),
        "schema": Verb("headrace.cli.schema:app", "Print the JSON Schema of headrace.yaml.", DESCRIBE),
        "render": Verb("headrace.cli.render:app", "Write it for Docker, compose, systemd or Kubernetes.", DESCRIBE),
        "observe": Verb("headrace.cli.observe:app", "Write Prometheus alerts and a Grafana dashboard.", DESCRIBE),
        "version": Verb("headrace.cli.version:app", "Print the versions of headrace and what it runs on.", DESCRIBE),
        "up": Verb("headrace.cli.up:app", "Start the declared engines and the gateway.", RUN),
        "down": Verb("headrace.cli.down:app", "Stop what `headrace up` started.", RUN),
        "status": Verb("headrace.cli.status:app", "Show gateway, pools and replicas, and what each is doing.", RUN),
        "logs": Verb("headrace.cli.logs:app", "Show the logs of engines, gateway and requests.", RUN),
        "reload": Verb("headrace.cli.reload:app", "Apply a changed declaration without losing a request.", RUN),
        "route": Verb("headrace.cli.route:app", "Explain where requests go, and whether splitting pays.", GOVERN),
        "cache": Verb("headrace.cli.cache:app", "Show how often prompts are found in the engines' caches.", GOVERN),
        "chat": Verb("headrace.cli.chat:app", "Talk to a model through the gateway.", RUN),
        "engine": Verb("headrace.cli.engine:app", "Show what would start each engine, and what it can do.", GOVERN),
        "sim": Verb("headrace.cli.sim:app", "Run a simulated engine: no GPU, a real engine's HTTP and speed.", RUN),
        "models": Verb("headrace.cli.models:app", "List the models and fetch their weights.", GOVERN),
        "tenants": Verb("headrace.cli.tenants:app", "Show, make, change and suspend tenants.", GOVERN),
        "keys": Verb("headrace.cli.keys:app", "Make, change, suspend and end API keys.", GOVERN),
        "quota": Verb("headrace.cli.quota:app", "Show limits, what is used of them and what is left.", GOVERN),
        "queue": Verb("headrace.cli.queue:app", "Show who waits for which model, since when and why.", GOVERN),
        "budget": Verb("headrace.cli.budget:app", "Show what was spent of each budget.", GOVERN),
        "audit": Verb("headrace.cli.audit:app", "Show who changed what, and when.", GOVERN),
        "usage": Verb("headrace.cli.usage:app", "Show who used how much.", GOVERN),
    }
)
"""Every verb: its module, its line in `headrace --help`, its group there. The only list of them."""


def load_verb(name: str) -> TyperCommand | TyperGroup:
    """Import verb `name` and return its command."""
    module_name, _, attribute = VERBS[name].target.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise OperatorError(f"headrace {name} is not part of this installation") from error
    app = cast("typer.Typer", getattr(module, attribute))
    app._add_completion = False  # pyright: ignore[reportPrivateUsage] # only the root offers completion
    return cast("TyperCommand | TyperGroup", typer.main.get_command(app))


class VerbGroup(TyperGroup):
    """The root command: lists verbs from the table, and imports the one that is invoked."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, verb in VERBS.items():
            self.commands[name] = TyperCommand(name, help=verb.line, rich_help_panel=verb.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the table's placeholder by the verb itself. Completion comes through here as well."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, load_verb(name) if name is not None and name in VERBS else placeholder, rest


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="headrace",
    cls=VerbGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: headrace up --detach && headrace chat 'Say hello.'",
)


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Declare, run, govern, explain and rehearse LLM inference in production."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 wrong usage, 3 a check found problems."""
    try:
        typer.main.get_command(app).main(args=argv, prog_name="headrace")
    except Exception as error:  # noqa: BLE001 # the boundary of the command: nothing above would show it better
        sys.exit(_report(error))


def _report(error: Exception) -> int:
    """Show `error` on stderr: expected ones as their text, others with how to report them."""
    if os.environ.get("HEADRACE_DEBUG"):
        traceback.print_exception(error)
    from headrace.cli.output import EXIT_FAILED, EXIT_USAGE, show_error
    from headrace.engines.contract import EngineUnavailableError

    if isinstance(error, OperatorError):
        show_error(error.message, hint=error.hint)
    elif isinstance(error, EngineUnavailableError):
        show_error(str(error))
    elif isinstance(error, OSError):
        show_error(str(error), hint="Set HEADRACE_DEBUG=1 to see where.")
    else:
        show_error(
            f"headrace failed in a way it should not: {type(error).__name__}: {error}",
            hint="This is a bug. Run the command again with HEADRACE_DEBUG=1 and report what it prints, with the "
            "output of `headrace version`.",
        )
    return EXIT_USAGE if isinstance(error, WrongUsageError) else EXIT_FAILED


if __name__ == "__main__":
    main()
