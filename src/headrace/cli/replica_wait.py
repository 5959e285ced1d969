"""Waiting for the replicas of a reload: until the gateway uses them, or one of them has failed."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from headrace.cli.control_client import ControlClient
from headrace.cli.engine_restart import gets_requests
from headrace.control_api.operations import InstanceStatus, ReloadReport, ReplicaStatus
from headrace.domain.endpoint import ReplicaPhase
from headrace.domain.operator_error import OperatorError

POLL_S = 0.2
_SETTLED = (ReplicaPhase.READY.value, ReplicaPhase.DRAINING.value, ReplicaPhase.STOPPED.value)
_LEAVING = (ReplicaPhase.DRAINING.value, ReplicaPhase.STOPPED.value)
_LAST_LINES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How the wait ended."""

    replicas: tuple[ReplicaStatus, ...]
    """Those that were waited for, as they are now."""
    failure: str | None = None
    """Which one has failed and why; None: all get requests."""


def await_replicas(client: ControlClient, report: ReloadReport, timeout_s: float, *, is_silent: bool) -> Waited:
    """Return once what `report` starts gets requests and what it ends gets none, or at the first failure.

    Where nothing has changed, those are waited for that an earlier reload has started.

    Raises: OperatorError where the time is over, or another reload has taken a replica out.
    """
    end_mono_s = time.monotonic() + timeout_s
    status = client.status()
    wanted = [name for pool in report.pools for name in pool.starts]
    if not report.changes:
        wanted = [one.endpoint for one in status.replicas if one.phase not in _SETTLED]
    ending = [name for pool in report.pools for name in pool.ends]
    seen: dict[str, str] = {}
    while True:
        here = {one.endpoint: one for one in status.replicas}
        found = tuple(here[name] for name in wanted if name in here)
        _tell(found, seen, is_silent=is_silent)
        if failure := _failure(found):
            return Waited(replicas=found, failure=failure)
        for name in wanted:
            if name in seen and name not in here:
                raise OperatorError(f"{name} is gone: another reload has taken it out")
        left = [name for name in ending if name in here and here[name].phase not in _LEAVING]
        if not left and all(_is_used(name, here, status) for name in wanted):
            return Waited(replicas=found)
        if time.monotonic() >= end_mono_s:
            raise OperatorError(_overdue(wanted, left, here, timeout_s), hint="It goes on: see `headrace status`.")
        time.sleep(POLL_S)
        status = client.status()


def _is_used(name: str, here: dict[str, ReplicaStatus], status: InstanceStatus) -> bool:
    is_ready = name in here and here[name].phase == ReplicaPhase.READY.value
    return is_ready and gets_requests(status.endpoints, name)


def _failure(replicas: Sequence[ReplicaStatus]) -> str | None:
    """The first failure, with the engine's last words."""
    for one in replicas:
        if one.failure is not None:
            return "\n".join([f"{one.endpoint} has failed: {one.failure}", *one.last_lines[-_LAST_LINES:]])
    return None


def _tell(replicas: Sequence[ReplicaStatus], seen: dict[str, str], *, is_silent: bool) -> None:
    """Say on stderr how far each is, once a phase."""
    for one in replicas:
        if seen.get(one.endpoint) != one.phase and not is_silent:
            typer.echo(f"{one.endpoint}: {one.phase}: {one.reason}", err=True)
        seen[one.endpoint] = one.phase


def _overdue(wanted: Sequence[str], left: Sequence[str], here: dict[str, ReplicaStatus], timeout_s: float) -> str:
    texts = [f"{name} is {here[name].phase}" if name in here else f"{name} has not started" for name in wanted]
    texts += [f"{name} still serves" for name in left]
    return f"not done after {timeout_s:g} s: {', '.join(texts)}"
