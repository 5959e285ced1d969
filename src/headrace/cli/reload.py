"""`headrace reload`: apply a changed declaration, or replace the running program, without losing a request."""

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import EXIT_FAILED, EXIT_PROBLEMS, EXIT_USAGE, emit, fail
from headrace.cli.replica_wait import await_replicas
from headrace.control_api.operations import InstanceStatus, PoolChange, ReloadReport
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
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would change and which replicas it would replace; change nothing.")
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Return once the replicas that change get requests, with 0, or one of them has failed, with 3 and why.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout-s", min=1, metavar="S", help="Longest wait of --wait and of --upgrade, seconds."),
]


@app.command(epilog="Example: headrace reload --dry-run && headrace reload --wait --timeout-s 600")
def reload(
    config: ReloadedOption = None,
    is_upgrade: UpgradeOption = False,
    is_dry_run: DryRunOption = False,
    is_waiting: WaitOption = False,
    timeout_s: TimeoutOption = 120.0,
    as_json: JsonOption = False,
) -> None:
    """Apply a changed declaration without losing a request.

    An invalid file, or one that changes what only a restart can change, changes nothing and says why (exit code 1).
    Changed replicas are started beside the old ones, which drain once the gateway uses the new ones; where memory is
    short, the old ones end first. Where new ones fail, the old ones go on serving. Without --wait all this is under
    way when the command returns.
    """
    if is_waiting and is_dry_run:
        fail("--wait and --dry-run exclude each other: a dry run starts nothing to wait for", code=EXIT_USAGE)
    settings = load_settings()
    running = get_supervisor(settings)
    if config is not None and config.resolve() != (running.config_file and Path(running.config_file).resolve()):
        raise OperatorError(
            f"the instance runs on {running.config_file or 'the built-in declaration'}, not on {config}",
            hint="Another file is taken by `headrace down` and `headrace up --config FILE`.",
        )
    failure = None
    with ControlClient(settings) as client:
        before = client.status()
        report = client.reload(is_dry_run=is_dry_run, is_upgrade=is_upgrade)
        if report.ok and report.is_upgrade and not is_dry_run:
            _await_upgrade(client, before, timeout_s)
        if report.ok and is_waiting:
            waited = await_replicas(client, report, timeout_s, is_silent=as_json)
            report, failure = msgspec.structs.replace(report, replicas=waited.replicas), waited.failure
    emit("reload", report, as_json=as_json, human=reload_text(report, is_waiting=is_waiting, failure=failure))
    if not report.ok:
        raise typer.Exit(EXIT_FAILED)
    if failure is not None:
        raise typer.Exit(EXIT_PROBLEMS)


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


def reload_text(report: ReloadReport, *, is_waiting: bool, failure: str | None) -> str:
    """What has changed, what becomes of the replicas, and what is still under way."""
    if not report.ok:
        return "\n".join(["nothing was changed:", *report.errors])
    lines = list(report.changes) or ["nothing has changed in the declaration"]
    replicas = [f"pool {pool.pool}: {pool_text(pool, is_dry_run=report.is_dry_run)}" for pool in report.pools]
    if report.is_dry_run:
        none = ["no replica would be started or ended"] if report.changes else []
        lines += [*(replicas or none), "(dry run: nothing was done)"]
        return "\n".join(lines)
    if report.is_upgrade:
        lines.append("supervisor and gateway were replaced by the installed version; the engines went on")
    elif report.changes:
        lines.append("the rules are applied" if replicas else "applied")
    if failure is not None:
        return "\n".join([*lines, failure, "What served before goes on; correct the declaration and reload again."])
    if is_waiting:
        lines += [f"{replica.endpoint} is ready" for replica in report.replicas]
    elif replicas:
        wait = "`headrace status` shows how far it is; `headrace reload --wait` returns when it is done or has failed"
        lines += ["still under way:", *replicas, wait]
    return "\n".join(lines)


def pool_text(pool: PoolChange, *, is_dry_run: bool) -> str:
    """Which replicas of a pool start and end, and in what order."""
    would = "would " if is_dry_run else ""
    starts = f"{', '.join(pool.starts)} {would}start{'s' if len(pool.starts) == 1 and not would else ''}"
    ends = f"{', '.join(pool.ends)} {would}end{'s' if len(pool.ends) == 1 and not would else ''}"
    if not pool.ends:
        return starts
    if not pool.starts:
        return f"{ends} once the requests in flight are finished"
    return f"{starts}; {ends} once the gateway uses the new (before that, where memory is short)"
