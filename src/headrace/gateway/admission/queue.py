"""Late binding: a request is given to an endpoint when one has room for it, and waits in the gateway until then.

The shell of `core/lane.py`: one lane per model, fed with what routing finds and endpoints measure. A model none of
whose endpoints has a known bound has no lane: its requests go straight on. Counterpart: docs/queueing.md.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Protocol

import structlog

from headrace.declaration.gateway_plan import GatewayPlan, PoolPlan
from headrace.declaration.queue_plan import QueuePlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.tenant import Caller
from headrace.domain.usage import TokenUsage
from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.ladder import AS_IT_IS, Degraded, degrade
from headrace.gateway.admission.core.lane import Lane, QueueBound, Refused
from headrace.gateway.admission.core.room import Room, has_room
from headrace.gateway.admission.queue_rules import declared_room, lane_rules
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim

log = structlog.get_logger("headrace.gateway")
UNSEEN_PREFILL_S = 0.5
"""A whole answer shows no first token: its prompt is taken to be computed after so long. Chosen: longer than most
prompts take; it only bounds how many prompts are sent at once while several tenants use a pool."""


class Held(Protocol):
    """A request on its way, as the queue sees it: forwarding's delivery."""

    request: InferenceRequest

    @property
    def claim(self) -> Claim | None: ...

    @property
    def attempt_mono_s(self) -> float:
        """When the attempt under way was sent."""
        ...

    @property
    def output_tokens(self) -> int: ...

    def start(self, first: Claim | None = None) -> None:
        """Send it to the endpoint of the claim, which it takes over."""
        ...

    def withdraw(self) -> bool:
        """Take it back from its engine; False where an answer has begun."""
        ...

    def end(self, error: RequestError) -> None: ...

    def crashed(self, bug: Exception) -> None: ...


class Finder(Protocol):
    """Routing, as the queue sees it."""

    def find(self, request: InferenceRequest, has_room: Callable[[Endpoint], bool]) -> Endpoint | None:
        """Return the best endpoint of those with room. Raises: RequestError where none could be chosen at all."""
        ...

    def group(self, request: InferenceRequest) -> tuple[str, ...] | None:
        """Return what tells which endpoints may serve it, equal for the like of it; None: has needs of its own."""
        ...


class ModelQueue:
    """The queue of one model, and who of it is in service."""

    def __init__(self, model: str, plans: tuple[QueuePlan, ...], loop: asyncio.AbstractEventLoop) -> None:
        self.model = model
        self.lane = Lane(lane_rules(plans), self._find)
        self.finder: Finder
        self.running: dict[QueueTicket, None] = {}
        self.degraded: dict[str, int] = {}
        """By step."""
        self.refused: dict[str, int] = {}
        """By bound."""
        self.withdrawals = 0
        self._loop = loop
        self._is_due = False
        self._is_pumping = False

    def wake(self) -> None:
        """Room may have come: look once, at the end of this turn of the loop."""
        if self.lane.waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self.pump)

    def pump(self) -> None:
        """Start whoever may go now."""
        self._is_due = False
        now = monotonic()
        self._is_pumping = True
        try:
            self._start(now)
            for ticket in self.lane.iter_withdrawable(now):
                held = _held(ticket)
                if held is not None and held.withdraw():
                    self.withdrawals += 1
                    self.running.pop(ticket, None)
                    self.lane.requeue(ticket, now)
                    self._start(now)
                    break
        finally:
            self._is_pumping = False

    def _start(self, now: float) -> None:
        for ticket, claim in self.lane.pump(now):
            self.running[ticket] = None
            held = _held(ticket)
            assert held is not None  # in one turn with `enter`, and nothing pumps in between
            try:
                held.start(claim)
            except Exception as bug:  # noqa: BLE001 (boundary of one request)
                held.crashed(bug)

    def _find(self, ticket: QueueTicket, *, is_light: bool, is_contended: bool) -> Endpoint | None:
        request, tokens = _request(ticket), ticket.input_tokens
        ratio = self.lane.rules.headroom_ratio

        def room(endpoint: Endpoint) -> bool:
            return not endpoint.load.has_limit or has_room(
                endpoint, tokens, is_light=is_light, is_contended=is_contended, headroom_ratio=ratio
            )

        try:
            return self.finder.find(request, room)
        except RequestError:
            if self._is_pumping or self.lane.waiting:
                return None  # it has been let in: it waits for an endpoint to come back, as long as it may
            raise


class Waiting:
    """What a ticket's `payload` is: the request, and its delivery once that is made."""

    __slots__ = ("degraded", "held", "request")

    def __init__(self, request: InferenceRequest) -> None:
        self.request = request
        self.held: Held | None = None
        self.degraded = AS_IT_IS


class AdmissionQueue:
    """All queues of one worker. Every ticket that `enter` returns is followed by exactly one `leave`.

    Concurrency: event loop only; room is found and claimed in the same turn, so two requests never get one place.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[str, ModelQueue] = {}
        self._limited: dict[str, ModelQueue] = {}
        """Those with an endpoint that has a bound."""
        self._pools: dict[str, tuple[PoolPlan, ...]] = {}
        self._rooms: dict[Endpoint, Room] = {}
        self._endpoints: Callable[[str], tuple[Endpoint, ...]] = _no_endpoints
        self._workers = 1
        self.has_lanes = False
        """False: nothing here has a bound, and nobody need ask."""

    # --- plans and readings

    def adopt(self, plan: GatewayPlan, endpoints: Callable[[str], tuple[Endpoint, ...]], *, workers: int = 1) -> None:
        """Follow a plan; `endpoints` says which a pool has now. Who waits stays; a model that is gone ends its own."""
        self._endpoints, self._workers = endpoints, workers
        pools = {model: tuple(pool for pool in plan.pools if pool.model == model) for model in plan.models}
        self._pools = {model: found for model, found in pools.items() if found}
        for model in self._queues.keys() - self._pools.keys():
            self._end_all(self._queues.pop(model))
        for model, found in self._pools.items():
            plans = tuple(pool.queue for pool in found)
            queue = self._queues.get(model)
            if queue is None:
                self._queues[model] = ModelQueue(model, plans, self._loop)
            else:
                queue.lane.adopt(lane_rules(plans))
        self._rooms = {endpoint: room for endpoint, room in self._rooms.items() if endpoint.plan.model in self._pools}
        for endpoint, room in self._rooms.items():
            room.adopt(declared_room(endpoint.plan.queue, workers))
        self._refresh()

    def use(self, finder: Finder) -> None:
        """Ask this router from now on."""
        for queue in self._queues.values():
            queue.finder = finder

    def note_reading(self, endpoint: Endpoint, now_mono_s: float) -> None:
        """The engine's own load was read, or could not be."""
        room = self._room(endpoint)
        if room is None:
            return
        measured = endpoint.load.fresh(now_mono_s)
        if measured is None:
            room.went_stale()
        elif measured is not room.last:
            room.measured(measured)
        self._refresh()

    def _room(self, endpoint: Endpoint) -> Room | None:
        room = self._rooms.get(endpoint)
        if room is None and endpoint.plan.model in self._queues:
            room = self._rooms[endpoint] = Room(endpoint.load, declared_room(endpoint.plan.queue, self._workers))
            endpoint.load.listener = self._queues[endpoint.plan.model].wake
        return room

    def _refresh(self) -> None:
        """Work out anew which models have bounds, and how many places."""
        limited: dict[str, ModelQueue] = {}
        known: set[Endpoint] = set()
        for model, queue in self._queues.items():
            endpoints = self.endpoints_of(model)
            known.update(endpoints)
            for endpoint in endpoints:
                self._room(endpoint)
            limits = [endpoint.load.sequences_limit for endpoint in endpoints if endpoint.is_usable]
            places = [limit for limit in limits if limit is not None]
            queue.lane.sequences_limit = sum(places) if places and len(places) == len(limits) else None
            if queue.lane.waiting or queue.lane.in_service or any(endpoint.load.has_limit for endpoint in endpoints):
                limited[model] = queue
            queue.wake()
        for endpoint in self._rooms.keys() - known:
            del self._rooms[endpoint]
        self._limited = limited
        self.has_lanes = bool(limited)

    # --- requests

    def enter(
        self, request: InferenceRequest, caller: Caller, now: float, deadline_mono_s: float | None, key: str | None
    ) -> QueueTicket | None:
        """Let a request in: with a claim where it may go now, without one where it waits; None where nothing bounds it.

        Raises: RequestError where the queue is full for it, or no endpoint could take it at all.
        """
        queue = self._limited.get(request.requested_model)
        if queue is None:
            return None
        ticket = QueueTicket(
            queue.lane.flow(caller.tenant, request.request_class, caller.weight),
            Waiting(request),
            now,
            request.estimated_input_tokens,
            len(request.body),
            deadline_mono_s,
            queue.finder.group(request),
            key,
        )
        ticket.queue = queue
        found = queue.lane.enter(ticket, now)
        if isinstance(found, Claim):
            ticket.claim = found
            queue.running[ticket] = None
        elif not caller.degrade:
            if found is not None:
                raise _refusal(queue, ticket, found)
        else:
            return self._degrade(queue, ticket, found, caller, now)
        return ticket

    def attach(self, ticket: QueueTicket, held: Held) -> Claim | None:
        """The delivery of a ticket is there: its claim is handed over; None: hold it, and call `wait`."""
        payload = ticket.payload
        assert isinstance(payload, Waiting)
        payload.held = held
        claim, ticket.claim = ticket.claim, None
        return claim

    def wait(self, ticket: QueueTicket) -> None:
        """A held delivery is started when its turn comes, perhaps at once."""
        queue = _queue(ticket)
        if queue.lane.may_go(ticket):
            queue.pump()

    def leave(self, ticket: QueueTicket, usage: TokenUsage, output_events: int) -> None:
        """A request is over, however it ended and wherever it was."""
        queue = _queue(ticket)
        claim, ticket.claim = ticket.claim, None
        if claim is not None:  # nobody took it over
            claim.free()
        queue.running.pop(ticket, None)
        output_tokens = usage.output_tokens
        queue.lane.leave(
            ticket,
            input_tokens=usage.input_tokens,
            output_tokens=output_events if output_tokens is None else output_tokens,
        )
        if queue.lane.waiting:
            queue.wake()

    def _degrade(
        self, queue: ModelQueue, ticket: QueueTicket, found: Refused | None, caller: Caller, now: float
    ) -> QueueTicket:
        """It cannot go now: do with it what its tenant has declared for that."""
        request = _request(ticket)
        wait_s = queue.lane.expected_wait_s(ticket.flow, now)
        step = degrade(caller.degrade, request.requested_model, request.output_limit_tokens, wait_s)
        group = queue.finder.group(request)
        cheaper = self._queues.get(step.model or "")
        if cheaper is not None and step.model is not None and group is not None and caller.may_use(step.model):
            if found is None:
                queue.lane.leave(ticket)
            queue.degraded["model"] = queue.degraded.get("model", 0) + 1
            return self._enter_cheaper(cheaper, request, step, caller, ticket, now)
        if found is not None:
            raise _refusal(queue, ticket, found)
        if step.is_refused:
            retry_after_s = queue.lane.drain.retry_after_s(queue.lane.waiting, now)
            queue.lane.leave(ticket)
            queue.refused["ladder"] = queue.refused.get("ladder", 0) + 1
            message = (
                f"model {request.requested_model!r} has {queue.lane.waiting} requests waiting, and this tenant's "
                "requests are refused rather than to wait so long (tenants.<name>.degrade)"
            )
            raise RequestError(ErrorCode.SATURATED, message, retry_after_s=retry_after_s)
        if step.output_tokens is not None and group is not None:
            queue.degraded["output_tokens"] = queue.degraded.get("output_tokens", 0) + 1
            _note(ticket, request.with_output_limit(step.output_tokens), step)
        return ticket

    def _enter_cheaper(
        self,
        queue: ModelQueue,
        request: InferenceRequest,
        step: Degraded,
        caller: Caller,
        before: QueueTicket,
        now: float,
    ) -> QueueTicket:
        assert step.model is not None
        request = request.for_model(step.model)
        group = queue.finder.group(request)
        if step.output_tokens is not None:
            request = request.with_output_limit(step.output_tokens)
        ticket = QueueTicket(
            queue.lane.flow(caller.tenant, request.request_class, caller.weight),
            Waiting(request),
            now,
            request.estimated_input_tokens,
            len(request.body),
            before.deadline_mono_s,
            group,
            before.key,
        )
        ticket.queue = queue
        _note(ticket, request, step)
        found = queue.lane.enter(ticket, now)
        if isinstance(found, Refused):
            raise _refusal(queue, ticket, found)
        if found is not None:
            ticket.claim = found
            queue.running[ticket] = None
        return ticket

    # --- clocks

    def sweep(self, now_mono_s: float) -> None:
        """Charge what has streamed, end who has waited too long, and see what has changed; every SWEEP_INTERVAL_S."""
        for queue in list(self._limited.values()):
            lane = queue.lane
            for ticket in queue.running:
                held = _held(ticket)
                if held is None:
                    continue
                lane.charge_output(ticket, held.output_tokens)
                claim = held.claim
                is_unseen = claim is not None and claim.is_prefilling and not held.request.is_stream
                if claim is not None and is_unseen and now_mono_s - held.attempt_mono_s > UNSEEN_PREFILL_S:
                    claim.first_token()
            for ticket in lane.expired(now_mono_s):
                self._expire(queue, ticket, now_mono_s)
        self._refresh()

    def _expire(self, queue: ModelQueue, ticket: QueueTicket, now_mono_s: float) -> None:
        held = _held(ticket)
        if held is None:
            return
        waited_s, request_class = now_mono_s - ticket.since_mono_s, ticket.flow.request_class
        queue.refused["expired"] = queue.refused.get("expired", 0) + 1
        message = (
            f"no endpoint of model {queue.model!r} had room for {waited_s:.0f} s, the longest wait of class "
            f"{request_class.value}; {queue.lane.waiting} requests wait"
        )
        retry_after_s = queue.lane.drain.retry_after_s(queue.lane.waiting, now_mono_s)
        held.end(RequestError(ErrorCode.QUEUE_EXPIRED, message, retry_after_s=retry_after_s))

    def _end_all(self, queue: ModelQueue) -> None:
        """Its model is not declared any more: who waits for it gets an answer that says so."""
        for flow in list(queue.lane.iter_flows()):
            for ticket in list(flow.iter_waiting()):
                held = _held(ticket)
                if held is not None:
                    message = f"model {queue.model!r} has just been taken out of the declaration"
                    held.end(RequestError(ErrorCode.NO_READY_ENDPOINT, message))

    # --- to see

    def endpoints_of(self, model: str) -> list[Endpoint]:
        """All endpoints of a model's pools."""
        return [endpoint for pool in self._pools.get(model, ()) for endpoint in self._endpoints(pool.name)]

    @property
    def queues(self) -> Mapping[str, ModelQueue]:
        return self._queues

    @property
    def waiting(self) -> int:
        return sum(queue.lane.waiting for queue in self._queues.values())


def degraded(ticket: QueueTicket) -> Degraded:
    """What was done with a request so that it need not be refused."""
    payload = ticket.payload
    return payload.degraded if isinstance(payload, Waiting) else AS_IT_IS


def request_of(ticket: QueueTicket) -> InferenceRequest:
    """The request as it is sent, shortened or not."""
    return _request(ticket)


def _note(ticket: QueueTicket, request: InferenceRequest, step: Degraded) -> None:
    payload = ticket.payload
    assert isinstance(payload, Waiting)
    payload.request, payload.degraded = request, step


def _request(ticket: QueueTicket) -> InferenceRequest:
    payload = ticket.payload
    assert isinstance(payload, Waiting)
    return payload.request


def _held(ticket: QueueTicket) -> Held | None:
    payload = ticket.payload
    assert isinstance(payload, Waiting)
    return payload.held


def _queue(ticket: QueueTicket) -> ModelQueue:
    queue = ticket.queue
    assert isinstance(queue, ModelQueue)
    return queue


def _no_endpoints(_pool: str) -> tuple[Endpoint, ...]:
    return ()


def _refusal(queue: ModelQueue, ticket: QueueTicket, refused: Refused) -> RequestError:
    """A full queue as an error: the tenant's own bound is a 429, everybody's a 503."""
    bound = refused.bound
    queue.refused[bound.value] = queue.refused.get(bound.value, 0) + 1
    unit = "bytes of requests" if bound in (QueueBound.TENANT_BYTES, QueueBound.POOL_BYTES) else "requests"
    whose = f"tenant {ticket.flow.tenant!r} has" if bound.is_tenants else "all tenants together have"
    message = (
        f"{whose} {refused.used} {unit} waiting for model {queue.model!r}; the limit is {refused.limit} "
        f"(level {'tenant' if bound.is_tenants else 'pool'}, queue.{bound.value})"
    )
    code = ErrorCode.RATE_LIMITED if bound.is_tenants else ErrorCode.SATURATED
    figures = {"limit": refused.limit, "used": refused.used, "reset_s": int(refused.retry_after_s)}
    return RequestError(code, message, retry_after_s=refused.retry_after_s, figures=figures)


def iter_tickets(queue: ModelQueue) -> Iterable[QueueTicket]:
    """Everybody who waits, tenant by tenant, in order within each."""
    for flow in queue.lane.iter_flows():
        yield from flow.iter_waiting()
