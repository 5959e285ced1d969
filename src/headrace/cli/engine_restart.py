"""`headrace engine restart POOL/N`: a fresh process for one replica, what it has in work finished first."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption
from headrace.cli.output import EXIT_FAILED, emit, fail
from headrace.control_api.operations import EndpointSummary, InstanceStatus, ReplicaStatus, RestartReport
from headrace.domain.endpoint import EndpointState, ReplicaPhase
from headrace.domain.operator_error import OperatorError
from headrace.settings import load_settings

POLL_S = 0.2

SERVING_STATES = (EndpointState.READY.value, EndpointState.BUSY.value)
"""In which the gateway sends an endpoint requests."""

ReplicaArgument = Annotated[
    str, typer.Argument(metavar="POOL/N", help="The replica, as `headrace status` names it.", show_default=False)
]
TimeoutOption = Annotated[float, typer.Option("--timeout-s", min=1, help="Longest wait until it is ready, seconds.")]


def restart(replica: ReplicaArgument, timeout_s: TimeoutOption = 900.0, as_json: JsonOption = False) -> None:
    """Drain one replica, end its engine and start it anew; return when it answers requests again.

    New requests go to the other replicas of the pool meanwhile; without one they are refused until it is back. One in
    a crash loop is tried again at once.
    """
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        report = client.restart(replica)
        if not report.is_accepted:
            fail(report.message)
        if not as_json:
            typer.echo(report.message, err=True)
        fresh = _await_fresh(client, report, timeout_s)
    emit("engine-restart", fresh, as_json=as_json, human=f"{replica} is ready, pid {fresh.pid}")


def _await_fresh(client: ControlClient, report: RestartReport, timeout_s: float) -> ReplicaStatus:
    """Wait for a process that is not the one from before. Raises: OperatorError."""
    end_mono_s = time.monotonic() + timeout_s
    while time.monotonic() < end_mono_s:
        status = client.status()
        found = _find(status, report.replica)
        if found is None:
            raise OperatorError(f"{report.replica} is gone: a reload has taken it out")
        is_fresh = found.phase == ReplicaPhase.READY.value and found.pid not in (None, report.pid)
        if is_fresh and gets_requests(status.endpoints, report.replica):
            return found
        if found.phase == ReplicaPhase.CRASH_LOOP.value:
            fail("\n".join([f"{report.replica}: {found.reason}", *found.last_lines[-10:]]), code=EXIT_FAILED)
        time.sleep(POLL_S)
    raise OperatorError(f"{report.replica} was not ready after {timeout_s:g} s", hint="`headrace status` says why.")


def gets_requests(endpoints: Sequence[EndpointSummary], replica: str) -> bool:
    """Tell whether every gateway worker sends requests to `replica` again: they learn of it after the supervisor."""
    return any(one.endpoint == replica and one.state in SERVING_STATES for one in endpoints)


def _find(status: InstanceStatus, replica: str) -> ReplicaStatus | None:
    return next((one for one in status.replicas if one.endpoint == replica), None)
