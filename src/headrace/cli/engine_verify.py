"""`headrace engine verify`: what headrace would pass and read, held against the engine that is installed."""

import os
import socket
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.engine_view import EngineArgument, rows_view
from headrace.cli.options import JsonOption
from headrace.cli.output import EXIT_PROBLEMS, console, emit
from headrace.declaration.builtin import BUILTIN_MODEL, BUILTIN_SHA256, BUILTIN_SOURCE
from headrace.declaration.load import load_declaration
from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.engines.contract import Driver, EmittedFlag, ReplicaSpec
from headrace.engines.registry import driver_for
from headrace.engines.verification import Look, State, Verification
from headrace.engines.verification import verify as compare
from headrace.engines.verification.commands import help_command
from headrace.engines.verification.compare import DIFFERENCES
from headrace.engines.verification.embedded import emitted_parameters, look_at_package, trial_run
from headrace.engines.verification.look import (
    look_at_command,
    look_at_help_file,
    look_at_metrics_file,
    look_at_url,
)
from headrace.fleet.deploy.models import ModelFetchError, ModelStore
from headrace.settings import load_settings

QUIET = frozenset({State.PRESENT})
"""States that are counted and not listed."""

VersionOption = Annotated[
    str | None,
    typer.Option("--version", metavar="V", help="The version that should be there; another one is a difference."),
]
PythonOption = Annotated[
    Path | None, typer.Option("--python", metavar="PATH", help="Python of the environment that the engine is in.")
]
CommandOption = Annotated[
    str | None, typer.Option("--command", metavar="LINE", help="Command line that shows the engine's --help.")
]
HelpFileOption = Annotated[
    Path | None, typer.Option("--help-file", metavar="FILE", help="A saved --help, instead of running anything.")
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="A running engine, whose metrics are read.")
]
MetricsFileOption = Annotated[
    Path | None, typer.Option("--metrics-file", metavar="FILE", help="A saved page of metrics.")
]
NoStartOption = Annotated[
    bool, typer.Option("--no-start", help="Do not start the embedded engine for a moment to read its metrics.")
]
DeclaredOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Look the extra_args of this declaration's pools up, too."),
]
AllOption = Annotated[bool, typer.Option("--all", help="List what is as expected, too.")]


def verify(
    engine: EngineArgument,
    version: VersionOption = None,
    python: PythonOption = None,
    command: CommandOption = None,
    help_file: HelpFileOption = None,
    url: UrlOption = None,
    metrics_file: MetricsFileOption = None,
    is_not_started: NoStartOption = False,
    config: DeclaredOption = None,
    is_all: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare every flag headrace can pass and every metric it reads with the engine that is installed.

    Flags are looked up in the engine's own --help: of --command, of --python's environment, or of the program on PATH.
    Metrics are looked up on the page of --url. The embedded llama.cpp needs neither: its package is asked, and it runs
    for a moment. Exits with 3 where something is missing or was renamed, with 1 where nothing could be looked at.
    """
    driver = driver_for(engine)
    is_default = not any((python, command, help_file, url, metrics_file))
    flags, emitted = _flags(driver, python, command, help_file, is_needed=url is None and metrics_file is None)
    metrics = _metrics(driver, url, metrics_file, is_started=is_default and not is_not_started, is_silent=as_json)
    if flags is None and metrics is None:
        raise OperatorError(
            f"there is no {engine.value} to look at here: nothing on PATH",
            hint="Name its Python with --python, its command with --command, or a running one with --url.",
        )
    emitted = (*emitted, *_declared_flags(engine, config))
    result = compare(
        engine, emitted=emitted, table=driver.metrics, flags=flags, metrics=metrics, wanted_version=version
    )
    emit(
        "engine-verify", result, as_json=as_json, human=lambda: rows_view(_texts(result), *_rows(result, is_all=is_all))
    )
    if result.differences:
        raise typer.Exit(EXIT_PROBLEMS)


def _flags(
    driver: Driver, python: Path | None, command: str | None, help_file: Path | None, *, is_needed: bool
) -> tuple[Look | None, tuple[EmittedFlag, ...]]:
    """Look at the engine's flags where a way is named, or where nothing else is looked at."""
    if driver.metrics is None:
        raise OperatorError(f"nothing is known of what runs behind engine {driver.kind.value}, so nothing to verify")
    if help_file is not None:
        return look_at_help_file(help_file), driver.emitted_flags
    if python is None and command is None and not is_needed:
        return None, driver.emitted_flags
    asked = help_command(driver.kind, python=python, command=command)
    if asked is not None:
        return look_at_command(asked), driver.emitted_flags
    if driver.kind is EngineKind.LLAMACPP:
        return look_at_package(python), emitted_parameters()
    return None, driver.emitted_flags


def _declared_flags(engine: EngineKind, config: Path | None) -> Iterator[EmittedFlag]:
    """Every flag that a declaration's pools of `engine` pass on as they are."""
    if config is None:
        return
    declaration = load_declaration(config, environ=os.environ, is_elsewhere=True).declaration
    for name, pool in declaration.pools.items():
        if pool.engine is engine:
            for word in pool.options.extra_args:
                if word.startswith("-"):
                    flag = word.partition("=")[0]
                    yield EmittedFlag(flag=flag, option=f"pools.{name}.extra_args", source=str(config))


def _metrics(
    driver: Driver, url: str | None, metrics_file: Path | None, *, is_started: bool, is_silent: bool
) -> Look | None:
    table = driver.metrics
    if table is None:
        return None
    if metrics_file is not None:
        return look_at_metrics_file(metrics_file)
    if url is not None:
        return look_at_url(url, table)
    if driver.kind is not EngineKind.LLAMACPP or not is_started:
        return None
    with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder:
        spec = _trial_spec(Path(folder), is_silent=is_silent)
        root = f"http://{spec.host}:{spec.port}"
        with trial_run(driver.launch(spec), driver, root):
            return look_at_url(root, table)


def _trial_spec(folder: Path, *, is_silent: bool) -> ReplicaSpec:
    """The bundled model with the smallest context, one thread and a free port."""
    if not is_silent:
        console(stderr=True).print("starting the embedded engine for a moment", soft_wrap=True)
    try:
        model = ModelStore(load_settings().cache_dir).ensure_now(BUILTIN_SOURCE, BUILTIN_SHA256, "q8_0")
    except ModelFetchError as error:
        raise OperatorError(
            f"the bundled model cannot be fetched: {error}", hint="--no-start leaves it out."
        ) from error
    (folder / "slots").mkdir()  # llama-server refuses a folder that is not there
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return ReplicaSpec(
        pool="verify",
        replica=0,
        served_model=BUILTIN_MODEL,
        model_path=model,
        host="127.0.0.1",
        port=port,
        context_tokens=256,
        threads=1,
        embeddings=False,
        slot_dir=folder / "slots",
        file_dir=folder,
        stop_s=1.0,
    )


def _texts(result: Verification) -> list[str]:
    """What was looked at, and how much of it is as expected."""
    version = result.version or "of unknown version"
    texts = [f"{result.engine.value} {version}; headrace's facts are of {result.read_version or 'no version'}"]
    for what, origin, states in (
        ("flags", result.flags_from, [finding.state for finding in result.flags]),
        ("metrics", result.metrics_from, [finding.state for finding in result.metrics]),
    ):
        if origin is None:
            texts.append(f"{what}: not looked at")
        else:
            counts = Counter(states)
            said = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
            texts.append(f"{what}: {len(states)} in {origin}: {said or 'none'}")
    texts += result.notes
    texts.append("no difference" if not result.differences else f"{result.differences} difference(s)")
    return texts


def _rows(result: Verification, *, is_all: bool) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    rows: list[tuple[object, ...]] = [
        (finding.flag, finding.state.value, finding.option, _instead(finding.nearest, finding.note))
        for finding in result.flags
        if is_all or finding.state not in QUIET
    ]
    rows += [
        (finding.name, finding.state.value, finding.purpose.value, _instead(finding.nearest, finding.note))
        for finding in result.metrics
        if is_all or finding.state not in QUIET
    ]
    order = [state.value for state in sorted(State, key=lambda state: state not in DIFFERENCES)]
    return ("name", "found", "for", "note"), sorted(rows, key=lambda row: order.index(str(row[1])))


def _instead(nearest: str | None, note: str) -> str | None:
    return "; ".join(_said(nearest, note)) or None


def _said(nearest: str | None, note: str) -> Iterator[str]:
    if note:
        yield note
    if nearest is not None and nearest not in note:
        yield f"nearest name there: {nearest}"
