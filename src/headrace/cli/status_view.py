"""An instance's status as tables for a person."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from headrace.batch.look import BatchView
from headrace.cli.handover_view import fit_lines
from headrace.cli.output import table
from headrace.control_api.operations import EndpointSummary, InstanceStatus, ReplicaStatus
from headrace.domain.clock import SystemClock


def status_view(status: InstanceStatus) -> RenderableType:
    """Everything on one screen: replicas as the supervisor sees them, endpoints as the gateway does."""
    parts: list[RenderableType] = [
        Text(f"headrace {status.version}, pid {status.pid}, up {seconds(now_at() - status.started_at)}"),
        Text(f"declaration  {status.config_file or '(built in)'}, plan revision {status.plan_revision}"),
        Text(f"inference    {status.inference_url}"),
        Text(f"control      {status.control_url}"),
        Text(f"state        {_state_text(status)}"),
        Text(""),
    ]
    if status.replicas:
        parts += [replica_table(status.replicas), Text("")]
    if status.endpoints:
        parts += [endpoint_table(status.endpoints), Text("")]
    else:
        parts += [Text("no endpoint yet: the gateway learns of a replica when it is ready"), Text("")]
    if status.handovers:
        parts += [*map(Text, fit_lines(status.handovers)), Text("")]
    columns = ("gateway worker", "pid", "requests", "in flight", "connections", "restarts", "state")
    parts.append(table(columns, _worker_rows(status), expendable=("connections", "pid", "requests")))
    if status.batches:
        columns = ("open batch", "tenant", "status", "lines", "for s", "window ends in s", "endpoint")
        rows = (_batch_row(batch) for batch in status.batches)
        parts += [Text(""), table(columns, rows, expendable=("endpoint", "for s", "window ends in s"))]
    parts += [Text(""), Text(_ledger_line(status))]
    for replica in status.replicas:
        if replica.last_lines:
            parts += [Text(""), Text(f"last words of {replica.endpoint}:")]
            parts += [Text(f"  {line}") for line in replica.last_lines[-10:]]
    return Group(*parts)


def replica_table(replicas: Iterable[ReplicaStatus]) -> RenderableType:
    """Replicas, one a row, with how long they took to get where they are."""
    columns = ("replica", "phase", "for s", "pid", "port", "restarts", "earlier phases s", "reason")
    return table(columns, map(replica_row, replicas), expendable=("earlier phases s", "port", "pid"))


def endpoint_table(endpoints: Sequence[EndpointSummary]) -> RenderableType:
    """As the gateway sees them; versions where an engine was asked for its own."""
    versions = ("version",) if any(each.version for each in endpoints) else ()
    columns = ("endpoint", "model", "engine", *versions, "state", "in flight", "attempts", "failures", "reason")
    rows = (
        (
            *(each.endpoint, each.model, each.engine, *([each.version] if versions else ()), each.state),
            *(each.in_flight, each.requests, each.failures, each.reason),
        )
        for each in endpoints
    )
    return table(columns, rows, expendable=("engine", "attempts", "model", "failures", *versions))


def _state_text(status: InstanceStatus) -> str:
    """Ready or not, and what is being waited for."""
    word = "ready" if status.is_ready else "not ready"
    said = word if status.reason in (word, "ready") else f"{word}; {status.reason}"
    failing = [replica.endpoint for replica in status.replicas if replica.failure is not None]
    if not failing or not status.is_ready:
        return said
    return f"{said}; {', '.join(failing)} fail{'s' if len(failing) == 1 else ''}: the reason is below"


def replica_row(replica: ReplicaStatus) -> tuple[object, ...]:
    earlier = ", ".join(f"{span.phase} {span.duration_s:.1f}" for span in replica.spans[:-1])
    current_s = replica.spans[-1].duration_s if replica.spans else None
    port = replica.url.rpartition(":")[2] if replica.url else None
    return (
        replica.endpoint,
        replica.phase,
        None if current_s is None else f"{current_s:.1f}",
        replica.pid,
        port,
        replica.restarts,
        earlier or None,
        replica.reason,
    )


def seconds(duration_s: float) -> str:
    """Write a duration for a person: 3.2 s, 4 min 10 s, 2 h 5 min."""
    if duration_s < 60:
        return f"{duration_s:.1f} s"
    minutes, rest_s = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def now_at() -> float:
    return SystemClock().wall_at().timestamp()


def _worker_rows(status: InstanceStatus) -> Iterable[tuple[object, ...]]:
    for worker in status.workers:
        seen = worker.status
        if seen is None:
            yield (worker.worker, worker.pid, None, None, None, worker.restarts, "does not answer")
            continue
        state = "draining" if seen.is_draining else "ready" if seen.is_ready else "no endpoint ready"
        if seen.sharing_trouble:
            state += f", limits not shared: {seen.sharing_trouble}"
        yield (worker.worker, seen.pid, seen.requests, seen.in_flight, seen.connections, worker.restarts, state)


def _batch_row(batch: BatchView) -> tuple[object, ...]:
    age_s, left_s = now_at() - batch.created_at, batch.expires_at - now_at()
    lines = batch.lines or None
    return (batch.batch_id, batch.tenant, batch.status, lines, f"{age_s:.0f}", f"{left_s:.0f}", batch.endpoint)


def _ledger_line(status: InstanceStatus) -> str:
    ledger = status.ledger
    lag = "nothing waits" if ledger.lag_s is None else f"up to {ledger.lag_s:.1f} s behind"
    parts = [
        "running" if ledger.is_running else "NOT RUNNING",
        f"{ledger.rows} rows written",
        f"{ledger.waiting_records} records waiting ({lag})",
        f"{ledger.dropped} dropped",
    ]
    if ledger.pending_records:
        parts.insert(3, f"{ledger.pending_records} not on disk yet")
    return f"ledger       {', '.join(parts)}" + (f"; {ledger.error}" if ledger.error else "")
