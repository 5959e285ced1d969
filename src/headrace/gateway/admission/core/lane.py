"""One queue: the requests for one model, and who of them goes next. Pure: the same in the gateway and in virtual time.

A request starts at once while an endpoint has room and nobody waits; otherwise it waits here rather than in an engine,
where no order could be kept. Whoever calls makes the `Claim`s that are returned become requests at engines, and calls
`pump` when room may have come.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules, BandTable
from headrace.gateway.admission.core.drain_rate import DrainRate
from headrace.gateway.admission.core.flow import OUTPUT_WEIGHT, Flow, QueueTicket
from headrace.gateway.endpoints.load import Claim, Place

MEMORY_S = 30.0
"""A tenant counts as using the pool so long after its last request: others then leave the headroom free. Chosen."""
HEAVY_LOOKS = 8
"""Once only the headroom is left, so many flows are looked at for one that is below its share. Chosen: who comes back
stands first among equals, so that one is soon found or none is there."""
FLOWS_KEPT = 4096
FORGET_S = 600.0
"""Where there are more flows, those without a request for so long are forgotten. Chosen."""
WITHDRAWALS = 2
"""So often one offline request gives way after it was sent; then it stays. Chosen: its work must end some day."""
OFFLINE = RequestClass.OFFLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRules:
    """What is declared of one queue."""

    bands: Mapping[RequestClass, BandRules]
    longest_wait_s: Mapping[RequestClass, float]
    tenant_requests: int
    tenant_bytes: int
    pool_requests: int
    pool_bytes: int
    headroom_ratio: float
    """Share of each endpoint's places that tenants above their fair share leave free while others use the pool."""
    deadline_first: bool = False
    """Inside a tenant the earliest deadline goes first, instead of who came first."""


class QueueBound(StrEnum):
    """Which bound of a queue refused a request."""

    TENANT_REQUESTS = "tenant_requests"
    TENANT_BYTES = "tenant_bytes"
    POOL_REQUESTS = "pool_requests"
    POOL_BYTES = "pool_bytes"

    @property
    def is_tenants(self) -> bool:
        return self in (QueueBound.TENANT_REQUESTS, QueueBound.TENANT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The queue is full for this request; nothing was counted."""

    bound: QueueBound
    limit: int
    used: int
    retry_after_s: float


class Find(Protocol):
    """Routing, as a queue sees it."""

    def __call__(self, ticket: QueueTicket, is_light: bool, is_contended: bool, /) -> Place | None:
        """Return the best endpoint that has room for the ticket; None: none has."""
        ...


@dataclass(slots=True)
class TenantWaiting:
    """What one tenant has waiting, over its bands."""

    requests: int = 0
    size_bytes: int = 0


class Lane:
    """The queue of one model. Concurrency: one thread; every call is one turn, in which room cannot change."""

    def __init__(self, rules: LaneRules, find: Find) -> None:
        self.rules = rules
        self.waiting = 0
        self.waiting_bytes = 0
        self.in_service = 0
        self.sequences_limit: int | None = None
        """Places of all its endpoints; None: not all of them have a bound."""
        self.drain = DrainRate()
        self._find = find
        self._bands = BandTable(rules.bands)
        self._flows: dict[tuple[str, RequestClass], Flow] = {}
        self._tenants: dict[str, TenantWaiting] = {}
        self._groups: dict[object, int] = {}
        """Waiting tickets by group."""
        self._keyed: dict[tuple[str, str], list[QueueTicket]] = {}
        self._active_weight = 0.0
        """Of the flows that have something waiting or in service."""
        self._offline: dict[QueueTicket, None] = {}
        """Offline requests at engines, in the order of their start."""
        self._last: Flow | None = None
        self._other: Flow | None = None
        """The flow that came last, and the last one before it that was another."""

    def adopt(self, rules: LaneRules) -> None:
        """Follow a plan; who waits keeps its place."""
        self.rules = rules
        self._bands.adopt(rules.bands)

    # --- requests

    def flow(self, tenant: str, request_class: RequestClass, weight: float) -> Flow:
        """Return where a tenant's requests of a class stand; its weight may have changed since."""
        flow = self._flows.get((tenant, request_class))
        if flow is None:
            heap = self._bands[request_class].heap
            flow = Flow(tenant, request_class, weight, heap, deadline_first=self.rules.deadline_first)
            self._flows[tenant, request_class] = flow
        elif flow.weight != weight:
            if flow.waiting or flow.in_service:
                self._active_weight += weight - flow.weight
            flow.weight = weight
        return flow

    def try_start(self, ticket: QueueTicket, now_mono_s: float) -> Claim | None:
        """A request has come: return its claim where it may start now; where not, `enter` or forget it."""
        flow = ticket.flow
        flow.seen_mono_s = now_mono_s
        if flow is not self._last:
            self._last, self._other = flow, self._last
        if self.waiting:
            return None
        place = self._find(ticket, False, True)  # room for anybody, which is the common case
        if place is None:
            rival = self._rival(flow, now_mono_s)
            place = self._find(ticket, self._is_light(flow, rival), rival is not None)
            if place is None:
                return None
        # As `_serve`, for the common case: nobody waits whom a band would owe anything.
        if not flow.in_service:
            self._active_weight += flow.weight
        self.in_service += 1
        flow.in_service += 1
        if flow.counter > flow.heap.floor:
            flow.heap.floor = flow.counter
        flow.counter += ticket.input_tokens / flow.weight
        if flow.request_class is OFFLINE:
            self._offline[ticket] = None
        return Claim(place, ticket.input_tokens)

    def enter(self, ticket: QueueTicket, now_mono_s: float) -> Refused | None:
        """It may not start now: it waits from now on, or its queue is full.

        Where it waits and `may_go` says so, `pump` must be called next.
        """
        refused = self._check_bounds(ticket, now_mono_s)
        if refused is None:
            self._wait(ticket, now_mono_s)
            if ticket.key is not None:
                self._inherit(ticket, now_mono_s)
        return refused

    @staticmethod
    def may_go(ticket: QueueTicket) -> bool:
        """Whether a ticket that has just begun to wait could be the next to go: nobody of its tenant is before it."""
        first = ticket.flow.first()
        return first is None or first is ticket or first.group is None or ticket.group is None or ticket.key is not None

    def leave(self, ticket: QueueTicket, input_tokens: int | None = None, output_tokens: int | None = None) -> None:
        """A request is over, whether it waited or ran; what the engine counted replaces what was estimated."""
        flow = ticket.flow
        if ticket.is_waiting:
            self._unwait(ticket)
        else:
            self.in_service -= 1
            flow.in_service -= 1
            if flow.request_class is OFFLINE:
                self._offline.pop(ticket, None)
            if output_tokens is not None:
                gained = output_tokens - ticket.charged_output_tokens
                if self.waiting:
                    self.charge_output(ticket, output_tokens)
                elif gained > 0:
                    flow.counter += gained * OUTPUT_WEIGHT / flow.weight
            if input_tokens is not None and input_tokens != ticket.input_tokens:
                flow.charge(float(input_tokens - ticket.input_tokens))  # no service that a band would be owed for
        if not flow.in_service and not flow.waiting:
            self._active_weight -= flow.weight

    def charge_output(self, ticket: QueueTicket, output_tokens: int) -> None:
        """A request in service has so many output tokens by now."""
        gained = output_tokens - ticket.charged_output_tokens
        if gained > 0:
            ticket.charged_output_tokens = output_tokens
            self._charge(ticket.flow, gained * OUTPUT_WEIGHT)

    def requeue(self, ticket: QueueTicket, now_mono_s: float) -> None:
        """A request that was sent has been taken back: it waits again, before the others of its tenant, uncharged."""
        flow = ticket.flow
        self.in_service -= 1
        flow.in_service -= 1
        self._offline.pop(ticket, None)
        ticket.withdrawals += 1
        flow.charge(-float(ticket.input_tokens))
        if not flow.in_service and not flow.waiting:
            self._active_weight -= flow.weight
        self._wait(ticket, now_mono_s, in_front=True)

    # --- room

    def pump(self, now_mono_s: float) -> Iterator[tuple[QueueTicket, Claim]]:
        """Start whoever may go now, in order: each yielded ticket has its claim already."""
        while self.waiting:
            found = self._next(now_mono_s)
            if found is None:
                return
            ticket, place = found
            self.drain.note(now_mono_s)
            band = self._bands[ticket.flow.request_class]
            self._unwait(ticket)
            band.unserved_since_mono_s = now_mono_s
            if self.waiting > band.waiting:
                ticket.withdrawals = WITHDRAWALS  # its turn although others wait: they do not take it back
            yield ticket, self._serve(ticket, place)

    def iter_withdrawable(self, now_mono_s: float) -> Iterator[QueueTicket]:
        """Offline requests that should give way to more urgent work that waits, the last started first."""
        if not self._offline or not self.waiting:
            return
        if self._bands.ordered(now_mono_s)[0].request_class is OFFLINE:
            return
        for ticket in reversed(list(self._offline)):
            if ticket.withdrawals < WITHDRAWALS:
                yield ticket

    def expired(self, now_mono_s: float) -> list[QueueTicket]:
        """Who has waited for longer than its class may."""
        found: list[QueueTicket] = []
        for flow in self._flows.values():
            if flow.waiting:
                since_mono_s = now_mono_s - self.rules.longest_wait_s[flow.request_class]
                found += [ticket for ticket in flow.iter_any_order() if ticket.since_mono_s <= since_mono_s]
        return list(dict.fromkeys(found))

    def forget_idle(self, now_mono_s: float) -> None:
        """Forget tenants that have not come for long, where there are very many."""
        if len(self._flows) > FLOWS_KEPT:
            self._flows = {
                name: flow
                for name, flow in self._flows.items()
                if flow.waiting or flow.in_service or flow.seen_mono_s > now_mono_s - FORGET_S
            }

    # --- to see

    def iter_flows(self) -> Iterator[Flow]:
        """Flows that have something waiting or in service."""
        return (flow for flow in self._flows.values() if flow.waiting or flow.in_service)

    def waiting_of(self, request_class: RequestClass) -> int:
        return self._bands[request_class].waiting

    def expected_wait_s(self, flow: Flow, now_mono_s: float) -> float | None:
        """How long one more request of `flow` would wait, as far as the drain rate says; None: not known."""
        if not self.waiting:
            return 0.0
        weights = self._active_weight + (0.0 if flow.waiting or flow.in_service else flow.weight)
        return self.drain.wait_s(flow.waiting * weights / flow.weight, now_mono_s)

    # --- inside

    def _rival(self, flow: Flow, now_mono_s: float) -> Flow | None:
        """Another flow that has used the pool lately."""
        other = self._other if flow is self._last else self._last
        return other if other is not None and other.seen_mono_s > now_mono_s - MEMORY_S else None

    def _is_light(self, flow: Flow, rival: Flow | None) -> bool:
        """Whether its tenant would still be within its share of the places with one more request."""
        limit = self.sequences_limit
        if limit is None or rival is None:
            return True
        if flow.request_class is OFFLINE:
            return False
        weights = self._active_weight
        if not flow.waiting and not flow.in_service:
            weights += flow.weight
        if not rival.waiting and not rival.in_service:
            weights += rival.weight  # idle just now, but it will be back
        return (flow.in_service + 1) * weights <= flow.weight * limit

    def _next(self, now_mono_s: float) -> tuple[QueueTicket, Place] | None:
        """Find who may go now, in order; a group that found no room is not asked for again."""
        full: set[object] = set()
        full_for_heavy: set[object] = set()
        looks = HEAVY_LOOKS
        for band in self._bands.ordered(now_mono_s):
            for flow in band.heap.iter_least():
                rival = self._rival(flow, now_mono_s)
                is_light = self._is_light(flow, rival)
                for ticket in flow.iter_next():
                    group = ticket.group
                    if group is not None and (group in full or (not is_light and group in full_for_heavy)):
                        continue
                    place = self._find(ticket, is_light, rival is not None)
                    if place is not None:
                        return ticket, place
                    if group is not None:
                        (full if is_light or rival is None else full_for_heavy).add(group)
                if self._groups.keys() <= full:
                    return None
                if self._groups.keys() <= full | full_for_heavy:
                    looks -= 1
                    if not looks:
                        return None
        return None

    def _serve(self, ticket: QueueTicket, place: Place) -> Claim:
        """Claim the place, and count. The flow's weight counts already."""
        flow = ticket.flow
        self.in_service += 1
        flow.in_service += 1
        tokens = ticket.input_tokens
        heap = flow.heap
        if flow.counter > heap.floor:
            heap.floor = flow.counter
        self._charge(flow, float(tokens))
        if flow.request_class is OFFLINE:
            self._offline[ticket] = None
        return Claim(place, tokens)

    def _charge(self, flow: Flow, tokens: float) -> None:
        flow.charge(tokens)
        if self.waiting:
            self._bands.charge(flow, tokens)

    def _wait(self, ticket: QueueTicket, now_mono_s: float, *, in_front: bool = False) -> None:
        flow = ticket.flow
        if not flow.waiting and not flow.in_service:
            self._active_weight += flow.weight
        band = self._bands[flow.request_class]
        if not band.waiting:
            band.began_waiting(now_mono_s)
        is_first = not flow.waiting
        flow.push(ticket, in_front=in_front)
        if is_first:
            band.heap.enter(flow, is_back=in_front)
        band.waiting += 1
        self._groups[ticket.group] = self._groups.get(ticket.group, 0) + 1
        self.waiting += 1
        self.waiting_bytes += ticket.body_bytes
        tenant = self._tenants.get(flow.tenant)
        if tenant is None:
            tenant = self._tenants[flow.tenant] = TenantWaiting()
        tenant.requests += 1
        tenant.size_bytes += ticket.body_bytes
        if ticket.key is not None:
            self._keyed.setdefault((flow.tenant, ticket.key), []).append(ticket)

    def _unwait(self, ticket: QueueTicket) -> None:
        """Take a waiting ticket out. The flow's weight stays counted: whoever calls serves or drops it next."""
        flow = ticket.flow
        flow.remove(ticket)
        self._bands[flow.request_class].waiting -= 1
        left = self._groups[ticket.group] - 1
        if left:
            self._groups[ticket.group] = left
        else:
            del self._groups[ticket.group]
        self.waiting -= 1
        self.waiting_bytes -= ticket.body_bytes
        tenant = self._tenants[flow.tenant]
        tenant.requests -= 1
        tenant.size_bytes -= ticket.body_bytes
        if not tenant.requests:
            del self._tenants[flow.tenant]
        if ticket.key is not None:
            same = self._keyed[flow.tenant, ticket.key]
            same.remove(ticket)
            if not same:
                del self._keyed[flow.tenant, ticket.key]

    def _check_bounds(self, ticket: QueueTicket, now_mono_s: float) -> Refused | None:
        rules, size = self.rules, ticket.body_bytes
        tenant = self._tenants.get(ticket.flow.tenant)
        requests, size_bytes = (tenant.requests, tenant.size_bytes) if tenant else (0, 0)
        checks = (
            (QueueBound.TENANT_REQUESTS, rules.tenant_requests, requests, 1),
            (QueueBound.TENANT_BYTES, rules.tenant_bytes, size_bytes, size),
            (QueueBound.POOL_REQUESTS, rules.pool_requests, self.waiting, 1),
            (QueueBound.POOL_BYTES, rules.pool_bytes, self.waiting_bytes, size),
        )
        for bound, limit, used, more in checks:
            if used + more > limit:
                ahead = requests if bound.is_tenants else self.waiting
                retry_after_s = self.drain.retry_after_s(ahead, now_mono_s)
                return Refused(bound=bound, limit=limit, used=used, retry_after_s=retry_after_s)
        return None

    def _inherit(self, ticket: QueueTicket, now_mono_s: float) -> None:
        """Those of the same conversation or idempotency key that wait in less urgent bands are raised to this one's."""
        flow = ticket.flow
        rank = BANDS.index(flow.request_class)
        for other in list(self._keyed[flow.tenant, ticket.key or ""]):
            if other is not ticket and BANDS.index(other.flow.request_class) > rank:
                self._raise(other, flow, now_mono_s)

    def _raise(self, ticket: QueueTicket, flow: Flow, now_mono_s: float) -> None:
        before = ticket.flow
        self._unwait(ticket)
        if not before.in_service and not before.waiting:
            self._active_weight -= before.weight
        ticket.flow = flow
        self._wait(ticket, now_mono_s, in_front=True)

    def __repr__(self) -> str:
        return f"Lane(waiting={self.waiting}, in_service={self.in_service}, limit={self.sequences_limit})"
