"""What the queue of one model looks like at one moment: `headrace queue`, the control API, and between processes."""

from collections.abc import Iterable, Sequence

import msgspec


class WaitingRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that waits."""

    request_id: str
    tenant: str
    request_class: str
    since_at: float
    """UTC epoch seconds."""
    waited_s: float
    input_tokens: int
    """Estimated."""
    deadline_in_s: float | None
    """Until its caller's own deadline; None: it has none."""
    worker: int | None = None
    """Gateway worker in which it waits."""


class TenantQueue(msgspec.Struct, frozen=True, kw_only=True):
    """One tenant's requests of one class."""

    tenant: str
    request_class: str
    weight: float
    waiting: int
    in_service: int
    oldest_s: float | None
    """How long the first of them has waited; None: none waits."""
    served_tokens: float
    """Its fairness counter: tokens served, output weighted, divided by its weight. Lower goes first."""


class EndpointRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How much work one endpoint has, and may have."""

    endpoint: str
    state: str
    in_flight: int
    places: int | None
    """Requests that it may have at once; None: no bound is known."""
    prefill_tokens: int
    held_tokens: int
    engine_running: float | None = None
    engine_waiting: float | None = None
    kv_utilization_ratio: float | None = None
    measured_age_s: float | None = None
    """Age of the three numbers before; None: never measured."""
    is_measured_fresh: bool = False
    """Whether those numbers count: old ones do not."""
    is_usable: bool = True
    """Whether it may be given requests."""

    @property
    def is_full(self) -> bool:
        return self.places is not None and self.in_flight >= self.places


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of one model."""

    model: str
    pools: tuple[str, ...]
    waiting: int
    waiting_bytes: int
    in_service: int
    starts_per_s: float | None
    """How fast requests leave the queue for engines; None: not measured."""
    reason: str
    """Why requests wait, or that none does."""
    by_class: dict[str, int]
    tenants: tuple[TenantQueue, ...]
    endpoints: tuple[EndpointRoom, ...]
    longest: tuple[WaitingRequest, ...]
    """Those that have waited longest; not all where many wait."""
    refused: dict[str, int]
    """Since the worker's start, by bound."""
    degraded: dict[str, int]
    """Since the worker's start, by what was done."""
    withdrawals: int


LONGEST_SHOWN = 50
"""Requests of one queue that are shown one by one."""


def reason_of(rooms: Sequence[EndpointRoom], waiting: int) -> str:
    """Say why requests wait."""
    if not waiting:
        return "nothing waits"
    usable = [room for room in rooms if room.is_usable]
    if not usable:
        return f"none of {len(rooms)} endpoints is ready"
    if _are_full(usable):
        places = sum(room.places or 0 for room in usable)
        return f"all {places} places of {len(usable)} ready endpoints are taken"
    return "the places that are free are kept for tenants below their share, or wait for prompts under way"


def _are_full(rooms: Sequence[EndpointRoom]) -> bool:
    usable = [room for room in rooms if room.is_usable]
    return bool(usable) and all(room.is_full for room in usable)


def _merged_reason(statuses: list[QueueStatus], rooms: Sequence[EndpointRoom], busiest: QueueStatus) -> str:
    """Why requests wait, in the figures of all workers: each has its own part of the places."""
    waiting = [status for status in statuses if status.waiting]
    if not waiting or not _are_full(busiest.endpoints):
        return busiest.reason
    usable = [room for room in rooms if room.is_usable]
    if _are_full(usable):
        return reason_of(usable, busiest.waiting)
    places, taken = sum(room.places or 0 for room in usable), sum(room.in_flight for room in usable)
    full = len([status for status in waiting if _are_full(status.endpoints)])
    return (
        f"the places of {full} of {len(statuses)} workers are taken, and requests wait there; in all {taken} of "
        f"{places} places are"
    )


def merge_queues(found: Iterable[tuple[int, tuple[QueueStatus, ...]]]) -> tuple[QueueStatus, ...]:
    """Sum the queues of several workers, given by worker number."""
    by_model: dict[str, list[QueueStatus]] = {}
    for worker, statuses in found:
        for status in statuses:
            longest = tuple(msgspec.structs.replace(each, worker=worker) for each in status.longest)
            by_model.setdefault(status.model, []).append(msgspec.structs.replace(status, longest=longest))
    return tuple(_merged(statuses) for statuses in by_model.values())


def _merged(statuses: list[QueueStatus]) -> QueueStatus:
    if len(statuses) == 1:
        return statuses[0]
    rates = [status.starts_per_s for status in statuses if status.starts_per_s is not None]
    busiest = max(statuses, key=lambda status: status.waiting)
    longest = sorted((each for status in statuses for each in status.longest), key=lambda each: each.since_at)
    endpoints = _merged_endpoints(statuses)
    return msgspec.structs.replace(
        busiest,
        reason=_merged_reason(statuses, endpoints, busiest),
        waiting=sum(status.waiting for status in statuses),
        waiting_bytes=sum(status.waiting_bytes for status in statuses),
        in_service=sum(status.in_service for status in statuses),
        starts_per_s=sum(rates) if rates else None,
        by_class=_summed(status.by_class for status in statuses),
        tenants=_merged_tenants(statuses),
        endpoints=endpoints,
        longest=tuple(longest[:LONGEST_SHOWN]),
        refused=_summed(status.refused for status in statuses),
        degraded=_summed(status.degraded for status in statuses),
        withdrawals=sum(status.withdrawals for status in statuses),
    )


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def _merged_tenants(statuses: list[QueueStatus]) -> tuple[TenantQueue, ...]:
    merged: dict[tuple[str, str], TenantQueue] = {}
    for each in (tenant for status in statuses for tenant in status.tenants):
        known = merged.get((each.tenant, each.request_class))
        if known is not None:
            ages = [age for age in (known.oldest_s, each.oldest_s) if age is not None]
            each = msgspec.structs.replace(
                each,
                waiting=known.waiting + each.waiting,
                in_service=known.in_service + each.in_service,
                oldest_s=max(ages) if ages else None,
                served_tokens=known.served_tokens + each.served_tokens,
            )
        merged[each.tenant, each.request_class] = each
    return tuple(merged.values())


def _merged_endpoints(statuses: list[QueueStatus]) -> tuple[EndpointRoom, ...]:
    merged: dict[str, EndpointRoom] = {}
    for each in (endpoint for status in statuses for endpoint in status.endpoints):
        known = merged.get(each.endpoint)
        if known is not None:
            places = None if known.places is None or each.places is None else known.places + each.places
            each = msgspec.structs.replace(
                each,
                in_flight=known.in_flight + each.in_flight,
                places=places,
                prefill_tokens=known.prefill_tokens + each.prefill_tokens,
                held_tokens=known.held_tokens + each.held_tokens,
                is_usable=known.is_usable or each.is_usable,
            )
        merged[each.endpoint] = each
    return tuple(merged.values())
