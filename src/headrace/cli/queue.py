"""`headrace queue`: who waits for which model, since when, and why; asks the running instance."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import console, emit, emit_line, table
from headrace.declaration.nearest import did_you_mean
from headrace.domain.operator_error import UnknownNameError
from headrace.domain.queue_status import EndpointRoom, QueueStatus, TenantQueue, WaitingRequest
from headrace.settings import load_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()
REFRESH_S = 1.0
_OF_TENANTS = ("weight", "served tokens / weight")
_OF_ENDPOINTS = ("held tokens", "measured s ago", "engine runs", "KV used %", "prefill tokens", "engine queues")
_OF_REQUESTS = ("worker", "input tokens", "deadline in s", "class")
"""What a narrow screen does without, the least first."""

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second until Ctrl-C.")]
ModelOption = Annotated[str | None, typer.Option("--model", "-m", metavar="MODEL", help="Only this model's queue.")]


@app.command(epilog="Example: headrace queue --watch")
def queue(model: ModelOption = None, is_watching: WatchOption = False, as_json: JsonOption = False) -> None:
    """Show who waits for which model, since when and why, and how much work each endpoint has."""
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:

        def look() -> tuple[QueueStatus, ...]:
            return only_of(model, client.queues())

        if not is_watching:
            found = look()
            emit("queue", found, as_json=as_json, human=lambda: queue_view(found))
            return
        try:
            if as_json:
                while True:
                    emit_line("queue", look())
                    time.sleep(REFRESH_S)
            from rich.live import Live

            with Live(console=console(), auto_refresh=False, screen=False) as live:
                while True:
                    live.update(queue_view(look()), refresh=True)
                    time.sleep(REFRESH_S)
        except KeyboardInterrupt:
            return


def only_of(model: str | None, queues: tuple[QueueStatus, ...]) -> tuple[QueueStatus, ...]:
    """The queue of `model`, or all of them; ends the command where there is no such model."""
    if model is None:
        return queues
    models = [each.model for each in queues]
    if model not in models:
        raise UnknownNameError(f'there is no model "{model}"', hint=did_you_mean(model, models))
    return tuple(each for each in queues if each.model == model)


def queue_view(found: Iterable[QueueStatus]) -> "RenderableType":
    """One block a model: the queue in a line, tenants, endpoints, and who has waited longest."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for status in found:
        parts += [Text(_headline(status)), Text("")]
        if status.tenants:
            columns = ("tenant", "class", "weight", "waiting", "in service", "oldest s", "served tokens / weight")
            parts += [table(columns, map(_tenant_row, _by_need(status)), expendable=_OF_TENANTS), Text("")]
        columns = (
            *("endpoint", "state", "in flight", "places", "prefill tokens", "held tokens"),
            *("engine runs", "engine queues", "KV used %", "measured s ago"),
        )
        parts += [table(columns, map(_endpoint_row, status.endpoints), expendable=_OF_ENDPOINTS), Text("")]
        if status.longest:
            columns = ("request", "tenant", "class", "waits s", "input tokens", "deadline in s", "worker")
            parts += [table(columns, map(_waiting_row, status.longest), expendable=_OF_REQUESTS), Text("")]
    return Group(*parts[:-1]) if parts else Text("No models are declared.")


def _headline(status: QueueStatus) -> str:
    line = f"{status.model}: {status.waiting} waiting, {status.in_service} in service; {status.reason}"
    if status.waiting:
        rate = status.starts_per_s
        line += "; how fast they start is not measured yet" if rate is None else f"; {rate:g} start a second"
    for what, counts in (("refused", status.refused), ("degraded", status.degraded)):
        if counts:
            line += f"; {what} since start: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    return line


def _by_need(status: QueueStatus) -> list[TenantQueue]:
    return sorted(status.tenants, key=lambda each: (-each.waiting, each.tenant))


def _tenant_row(each: TenantQueue) -> tuple[object, ...]:
    oldest = None if each.oldest_s is None else f"{each.oldest_s:.1f}"
    served = f"{each.served_tokens:,.0f}"
    return (each.tenant, each.request_class, f"{each.weight:g}", each.waiting, each.in_service, oldest, served)


def _endpoint_row(each: EndpointRoom) -> tuple[object, ...]:
    age = None if each.measured_age_s is None else f"{each.measured_age_s:.1f}"
    if age is not None and not each.is_measured_fresh:
        age += " (too old: own counts hold)"
    return (
        each.endpoint,
        each.state,
        each.in_flight,
        "no bound known" if each.places is None else each.places,
        each.prefill_tokens,
        each.held_tokens,
        None if each.engine_running is None else f"{each.engine_running:g}",
        None if each.engine_waiting is None else f"{each.engine_waiting:g}",
        None if each.kv_utilization_ratio is None else f"{each.kv_utilization_ratio * 100:.0f}",
        age,
    )


def _waiting_row(each: WaitingRequest) -> tuple[object, ...]:
    deadline = None if each.deadline_in_s is None else f"{each.deadline_in_s:.1f}"
    return (
        each.request_id,
        each.tenant,
        each.request_class,
        f"{each.waited_s:.1f}",
        each.input_tokens,
        deadline,
        each.worker,
    )
