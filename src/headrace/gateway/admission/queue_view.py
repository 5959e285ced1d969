"""The queues of one worker as operators see them: who waits, since when, and why."""

from collections.abc import Iterator

from headrace.domain.queue_status import (
    LONGEST_SHOWN,
    EndpointRoom,
    QueueStatus,
    TenantQueue,
    WaitingRequest,
    reason_of,
)
from headrace.gateway.admission.core.bands import BANDS
from headrace.gateway.admission.core.flow import Flow
from headrace.gateway.admission.model_queue import GatewayTicket, ModelQueue
from headrace.gateway.admission.queue import AdmissionQueue
from headrace.gateway.endpoints.endpoint import Endpoint


def queue_statuses(queue: AdmissionQueue, now_mono_s: float, now_at: float) -> list[QueueStatus]:
    """Return one status a model, in the declared order."""
    return [_status(each, queue.endpoints_of(each.model), now_mono_s, now_at) for each in queue.queues.values()]


def _status(queue: ModelQueue, endpoints: list[Endpoint], now_mono_s: float, now_at: float) -> QueueStatus:
    lane = queue.lane
    waiting = sorted(_iter_tickets(queue), key=lambda ticket: ticket.since_mono_s)[:LONGEST_SHOWN]
    rate = lane.drain.per_s(now_mono_s)
    rooms = tuple(_endpoint(endpoint, now_mono_s) for endpoint in endpoints)
    return QueueStatus(
        model=queue.model,
        pools=tuple(dict.fromkeys(endpoint.plan.name for endpoint in endpoints)),
        waiting=lane.waiting,
        waiting_bytes=lane.waiting_bytes,
        in_service=lane.in_service,
        starts_per_s=None if rate is None else round(rate, 3),
        reason=reason_of(rooms, lane.waiting),
        by_class={each.value: lane.waiting_of(each) for each in BANDS},
        tenants=tuple(_tenant(flow, now_mono_s) for flow in lane.iter_flows()),
        endpoints=rooms,
        longest=tuple(_waiting(ticket, now_mono_s, now_at) for ticket in waiting),
        refused=dict(queue.refused),
        degraded=dict(queue.degraded),
        withdrawals=queue.withdrawals,
    )


def _tenant(flow: Flow, now_mono_s: float) -> TenantQueue:
    oldest_mono_s = min((ticket.since_mono_s for ticket in flow.iter_any_order()), default=None)
    return TenantQueue(
        tenant=flow.tenant,
        request_class=flow.request_class.value,
        weight=flow.weight,
        waiting=flow.waiting,
        in_service=flow.in_service,
        oldest_s=None if oldest_mono_s is None else round(now_mono_s - oldest_mono_s, 3),
        served_tokens=round(flow.counter, 1),
    )


def _endpoint(endpoint: Endpoint, now_mono_s: float) -> EndpointRoom:
    load, measured = endpoint.load, endpoint.load.measured
    age_s = load.age_s(now_mono_s)
    return EndpointRoom(
        endpoint=endpoint.endpoint_id,
        state=endpoint.state.value,
        in_flight=endpoint.in_flight,
        places=load.sequences_limit,
        prefill_tokens=load.prefill_tokens,
        held_tokens=load.held_tokens,
        engine_running=measured.running if measured else None,
        engine_waiting=measured.waiting if measured else None,
        kv_utilization_ratio=measured.kv_utilization_ratio if measured else None,
        measured_age_s=None if age_s is None else round(age_s, 3),
        is_measured_fresh=load.fresh(now_mono_s) is not None,
        is_usable=endpoint.is_usable,
    )


def _waiting(ticket: GatewayTicket, now_mono_s: float, now_at: float) -> WaitingRequest:
    waited_s = now_mono_s - ticket.since_mono_s
    deadline = ticket.deadline_mono_s
    return WaitingRequest(
        request_id=ticket.held.account.request_id if ticket.held is not None else "",
        tenant=ticket.flow.tenant,
        request_class=ticket.flow.request_class.value,
        since_at=now_at - waited_s,
        waited_s=round(waited_s, 3),
        input_tokens=ticket.input_tokens,
        deadline_in_s=None if deadline is None else round(deadline - now_mono_s, 3),
    )


def _iter_tickets(queue: ModelQueue) -> Iterator[GatewayTicket]:
    for flow in queue.lane.iter_flows():
        for ticket in flow.iter_waiting():
            assert isinstance(ticket, GatewayTicket)
            yield ticket
