"""`headrace up`: start the declared engines and the gateway, and say how to use them."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from headrace.cli.control_client import ControlClient
from headrace.cli.handover_view import hopeless_texts
from headrace.cli.options import ConfigOption, JsonOption, SetOption, verb_app
from headrace.cli.output import EXIT_FAILED, EXIT_USAGE, emit, fail, show_error
from headrace.cli.up_view import (
    Progress,
    Welcome,
    failing_replicas,
    first_model,
    is_settled,
    make_curl,
    welcome_text,
)
from headrace.control_api.operations import InstanceStatus
from headrace.declaration.load import Loaded, find_declaration
from headrace.domain.operator_error import OperatorError
from headrace.domain.tenant import Scope
from headrace.fleet.deploy.state_files import SupervisorFile, find_supervisor, prepare_folders
from headrace.settings import Settings, load_settings
from headrace.whole_file import check_room
from headrace.wiring.declared import Source, ask_endpoint, refuse_another, running_source
from headrace.wiring.first_keys import keeps_first_key, take_first_keys
from headrace.wiring.instance import run_instance
from headrace.wiring.operations import InstanceOperations

app = verb_app()
POLL_S = 0.15

SUPERVISOR_OUTPUT = "supervisor.err"
"""In the log folder: what a supervisor in the background writes to its output, its last words above all."""

PROBE_BYTES = 65536
"""More than a file system that is full to its last block still takes."""

DetachOption = Annotated[bool, typer.Option("--detach", "-d", help="Go on in the background once it is ready.")]
EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="Govern an engine that already runs there; nothing else to write."),
]
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=1, help="Longest wait to become ready, seconds.")]


@app.command(epilog="Example: headrace up --detach")
def up(
    config: ConfigOption = None,
    overrides: SetOption = None,
    is_detached: DetachOption = False,
    endpoint: EndpointOption = None,
    timeout_s: TimeoutOption = 900.0,
    as_json: JsonOption = False,
) -> None:
    """Start the declared engines and the gateway, then print URL, key and a first request.

    In the foreground until Ctrl-C (a second one hurries), or with --detach in the background: then Ctrl-C ends only
    the waiting. Where it runs already, says how to use it, and refuses to take it for another file, engine or --set.
    """
    if endpoint is not None and config is not None:
        fail("--endpoint excludes --config", code=EXIT_USAGE)
    settings = load_settings()
    path = None if endpoint else find_declaration(config, environ=os.environ)
    source = Source(config=path.absolute() if path else None, overrides=tuple(overrides or ()), endpoint=endpoint)
    running = find_supervisor(settings)
    if running is not None:
        _show_running(settings, source, running, timeout_s, as_json=as_json)
        return
    source = ask_endpoint(source)
    loaded = source.loader(os.environ)()
    for warning in loaded.warnings:
        typer.echo(str(warning), err=True)
    if is_detached:
        _detach(settings, source)
        status = _await_ready(settings, timeout_s, as_json=as_json)
        _emit_welcome(settings, loaded, status, as_json=as_json)
        if not is_settled(status):
            raise typer.Exit(EXIT_FAILED)
    else:
        run_instance(source, settings, watch=_Foreground(settings, as_json=as_json).watch)
        typer.echo("stopped", err=True)


class _Foreground:
    """Shows progress and welcome from inside the supervisor's own process."""

    def __init__(self, settings: Settings, *, as_json: bool) -> None:
        self._settings, self._as_json = settings, as_json

    async def watch(self, operations: InstanceOperations, loaded: Loaded) -> None:
        progress = Progress(is_silent=self._as_json)
        try:
            while True:
                status = await operations.status()
                progress.show(status)
                if is_settled(status) or failing_replicas(status):
                    break
                await asyncio.sleep(POLL_S)
        finally:
            progress.close()
        for line in failing_replicas(status):
            show_error(line)
        _emit_welcome(self._settings, loaded, status, as_json=self._as_json)
        await operations.supervisor.wait_stopping()
        typer.echo("stopping: running requests finish first (Ctrl-C again hurries)", err=True)


def _detach(settings: Settings, source: Source) -> None:
    """Start the supervisor in a session of its own. Raises: OperatorError with what it said if it ends at once."""
    prepare_folders(settings)
    output_path = settings.log_dir / f"{SUPERVISOR_OUTPUT}.{os.getpid()}"  # another `up` may be starting too
    with output_path.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.wiring", *source.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        with ControlClient(settings, timeout_s=5.0) as client:
            while process.poll() is None:
                found = find_supervisor(settings)
                if found is not None and found.process.pid == process.pid and client.try_status() is not None:
                    process.returncode = 0  # It goes on without us, and writes to the file by whatever name.
                    output_path.replace(settings.log_dir / SUPERVISOR_OUTPUT)
                    return
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        process.returncode = 0
        output_path.replace(settings.log_dir / SUPERVISOR_OUTPUT)
        _leave_running(process.pid)
    words = _last_words(output_path)
    output_path.unlink(missing_ok=True)
    raise OperatorError(words or f"the supervisor ended with status {process.returncode}{_why_silent(settings)}")


def _why_silent(settings: Settings) -> str:
    """Say why there are no last words, where it is the disk: then what ended the supervisor is likely to be it, too."""
    try:
        check_room(settings.log_dir, PROBE_BYTES)
    except OSError as error:
        return f" and could not say why: {settings.log_dir} cannot be written: {os.strerror(error.errno or 0)}"
    return ""


def _await_ready(settings: Settings, timeout_s: float, *, as_json: bool) -> InstanceStatus:
    """Show progress until everything answers, something is in a crash loop, or the time is over."""
    progress = Progress(is_silent=as_json)
    end_mono_s = time.monotonic() + timeout_s
    running = find_supervisor(settings)
    try:
        with ControlClient(settings) as client:
            while True:
                status = client.status()
                progress.show(status)
                if is_settled(status) or failing_replicas(status) or time.monotonic() >= end_mono_s:
                    break
                time.sleep(POLL_S)
    except OperatorError as error:
        while running is not None and running.process.is_alive and time.monotonic() < end_mono_s:
            time.sleep(POLL_S)  # It is stopping: its last words come at its end, after it has given up its state.
        words = _last_words(settings.log_dir / SUPERVISOR_OUTPUT)
        raise OperatorError(f"the supervisor stopped: {words or error.message}") from error
    except KeyboardInterrupt:
        progress.close()
        found = find_supervisor(settings)
        _leave_running(found.process.pid if found else None)
    finally:
        progress.close()
    for line in failing_replicas(status):
        show_error(line)
    return status


def _leave_running(pid: int | None) -> NoReturn:
    """Ctrl-C while waiting: what runs in a session of its own is not touched; say so, and how to go on."""
    fail(
        f"no longer waiting; headrace goes on in the background{f' (pid {pid})' if pid else ''}",
        hint="`headrace status` shows how far it is, `headrace up` waits again and shows the key, `headrace down` ends "
        "it.",
    )


def _show_running(
    settings: Settings, source: Source, running: SupervisorFile, timeout_s: float, *, as_json: bool
) -> None:
    """`up` again: the same lines. A changed declaration is said, not applied; another one is refused."""
    told = running_source(running)
    refuse_another(source, told)
    headline = "headrace was running already"
    try:
        loaded = told.loader(os.environ)()
        if loaded.path is None:
            headline += f", on {told.shown}"
        elif loaded.digest == running.declaration_digest:
            headline += f", on {loaded.path}"
        else:
            headline += f"; {loaded.path} has changed since: `headrace reload` applies it"
    except OperatorError as error:
        headline += f"; its declaration as it is now cannot be used: {error.message}"
        loaded = Source().loader(os.environ)()
    status = _await_ready(settings, timeout_s, as_json=as_json)
    _emit_welcome(settings, loaded, status, as_json=as_json, headline=headline)


def _emit_welcome(
    settings: Settings, loaded: Loaded, status: InstanceStatus, *, as_json: bool, headline: str = ""
) -> None:
    keys = take_first_keys(settings, loaded)
    api_key, model = keys.get(Scope.INFERENCE), first_model(loaded.declaration, status)
    welcome = Welcome(
        is_ready=is_settled(status),
        reason=status.reason,
        inference_url=status.inference_url,
        control_url=status.control_url,
        model=model,
        api_key=api_key,
        admin_key=keys.get(Scope.ADMIN),
        curl=make_curl(loaded.declaration, status.inference_url, model, api_key) if model else None,
        log_dir=str(settings.log_dir),
        is_key_kept=keeps_first_key(loaded),
        headline=headline,
        note="\n".join(hopeless_texts(status.handovers)),
    )
    emit("up", welcome, as_json=as_json, human=welcome_text(welcome))


def _last_words(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[-4000:]
    except OSError:
        return ""
