"""`headrace reload`: apply a changed declaration, or replace the running program, without losing a request."""

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import EXIT_FAILED, emit
from headrace.control_api.operations import InstanceStatus, ReloadReport
from headrace.domain.operator_error import OperatorError
from headrace.settings import load_settings

app = verb_app()
POLL_S = 0.1

ReloadedOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="The file that the instance runs on, to be sure; another one is refused."
    ),
]
UpgradeOption = Annotated[
    bool,
    typer.Option("--upgrade", help="Also replace supervisor and gateway by the installed version; engines go on."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=1, help="Longest wait for an upgrade, seconds.")]


@app.command(epilog="Example: headrace reload --dry-run && headrace reload")
def reload(
    config: ReloadedOption = None,
    is_upgrade: UpgradeOption = False,
    is_dry_run: DryRunOption = False,
    timeout_s: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Apply a changed declaration without losing a request.

    An invalid file, or one that changes what only a restart can change, changes nothing and says why (exit code 1).
    Changed replicas are started beside the old ones, which drain once the gateway uses the new ones; where memory is
    short, the old ones end first.
    """
    settings = load_settings()
    running = get_supervisor(settings)
    if config is not None and config.resolve() != (running.config_file and Path(running.config_file).resolve()):
        raise OperatorError(
            f"the instance runs on {running.config_file or 'the built-in declaration'}, not on {config}",
            hint="Another file is taken by `headrace down` and `headrace up --config FILE`.",
        )
    with ControlClient(settings) as client:
        before = client.status()
        report = client.reload(is_dry_run=is_dry_run, is_upgrade=is_upgrade)
        if report.ok and report.is_upgrade and not is_dry_run:
            _await_upgrade(client, before, timeout_s)
    emit("reload", report, as_json=as_json, human=_describe(report))
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)


def _await_upgrade(client: ControlClient, before: InstanceStatus, timeout_s: float) -> None:
    """Return once only fresh workers serve; say so where the old ones still have requests to finish."""
    old = {worker.worker for worker in before.workers}
    end_mono_s = time.monotonic() + timeout_s
    leaving = ""
    while time.monotonic() < end_mono_s:
        status = client.try_status()
        if status is not None and any(worker.worker not in old for worker in status.workers):
            seen = [worker.status for worker in status.workers if worker.worker in old]
            if not seen:
                return
            in_flight = sum(one.in_flight for one in seen if one is not None)
            if in_flight and not leaving:
                leaving = f"the new gateway serves; the old one finishes {in_flight} request(s), up to gateway.drain_s"
                typer.echo(leaving, err=True)
        time.sleep(POLL_S)
    hint = "New requests are served by the new gateway." if leaving else "See `headrace logs`."
    raise OperatorError(f"the upgrade was not complete after {timeout_s:g} s", hint=hint)


def _describe(report: ReloadReport) -> str:
    if not report.ok:
        return "\n".join(["nothing was changed:", *report.errors])
    lines = list(report.changes) or ["nothing has changed in the declaration"]
    if report.is_dry_run:
        lines.append("(dry run: nothing was done)")
    elif report.is_upgrade:
        lines.append("supervisor and gateway were replaced by the installed version; the engines went on")
    elif report.changes:
        lines.append("applied")
    return "\n".join(lines)
