"""Late binding: a request is given to an endpoint when one has room for it, and waits in the gateway until then.

The shell of `core/lane.py`: one lane per model, fed with what routing finds and endpoints measure. A model none of
whose endpoints has a known bound has no lane: its requests go straight on. Counterpart: docs/queueing.md.
"""

import asyncio
from collections.abc import Callable, Mapping

from headrace.declaration.gateway_plan import GatewayPlan, PoolPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.tenant import Caller
from headrace.domain.usage import TokenUsage
from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.ladder import Degraded, degrade
from headrace.gateway.admission.core.room import Room
from headrace.gateway.admission.model_queue import Finder, GatewayTicket, ModelQueue, refusal_of
from headrace.gateway.admission.queue_rules import declared_room, lane_rules
from headrace.gateway.endpoints.endpoint import Endpoint

KEY_HEADERS = (b"x-headrace-conversation", b"idempotency-key")
"""Requests of one tenant with the same value of one of these wait on one another."""
KEY_BYTES = 128
"""Longer values are cut: they only need to tell conversations apart."""
UNSEEN_PREFILL_S = 0.5
"""A whole answer shows no first token: its prompt is taken to be computed after so long. Chosen: longer than most
prompts take; it only bounds how many prompts are sent at once while several tenants use a pool."""


FULL_WAIT_S = 1.0
"""Expected where every place is taken and nobody waits: one comes free soon. Chosen."""
UNKNOWN_WAIT_S = 5.0
"""Expected behind others of whom none has started yet. Chosen."""


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
        room, measured = self._room(endpoint), endpoint.load.fresh(now_mono_s)
        if room is not None and measured is not None and measured is not room.last:
            room.measured(measured)
            self._refresh()

    def _room(self, endpoint: Endpoint) -> Room | None:
        room = self._rooms.get(endpoint)
        if room is None and endpoint.plan.model in self._queues:
            room = self._rooms[endpoint] = Room(endpoint.load, declared_room(endpoint.plan.queue, self._workers))
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
            listener = queue.wake if model in limited else None
            for endpoint in endpoints:
                endpoint.load.listener = listener
            queue.wake()
        for endpoint in self._rooms.keys() - known:
            del self._rooms[endpoint]
        self._limited = limited
        self.has_lanes = bool(limited)

    # --- requests

    def enter(
        self,
        request: InferenceRequest,
        caller: Caller,
        now: float,
        deadline_mono_s: float | None,
        headers: Mapping[bytes, bytes],
    ) -> GatewayTicket | None:
        """Let a request in: with a claim where it may go now, without one where it waits; None where nothing bounds it.

        Raises: RequestError where the queue is full for it, or no endpoint could take it at all.
        """
        queue = self._limited.get(request.requested_model)
        if queue is None:
            return None
        flow = queue.lane.flow(caller.tenant, request.request_class, caller.weight)
        ticket = GatewayTicket(flow, now, request.estimated_input_tokens, len(request.body), deadline_mono_s)
        ticket.request, ticket.queue, ticket.held, ticket.degraded = request, queue, None, None
        claim = queue.lane.try_start(ticket, now)
        if claim is None:
            return self._must_wait(ticket, caller, now, headers)
        ticket.claim = claim
        queue.running[ticket] = None
        return ticket

    def expected_wait_s(self, model: str, request: InferenceRequest, weight: float, now: float) -> float:
        """How long the request would wait for `model`, its tenant having `weight`; 0 where nothing bounds it."""
        queue = self._limited.get(model)
        if queue is None:
            return 0.0
        lane = queue.lane
        if not lane.waiting:
            usable = [endpoint for endpoint in self.endpoints_of(model) if endpoint.is_usable]
            return FULL_WAIT_S if usable and all(_is_full(endpoint) for endpoint in usable) else 0.0
        wait_s = lane.expected_wait_s(lane.flow(request.tenant, request.request_class, weight), now)
        return UNKNOWN_WAIT_S if wait_s is None else wait_s

    def wait(self, ticket: GatewayTicket) -> None:
        """A held delivery is started when its turn comes, perhaps at once."""
        queue = ticket.queue
        if queue.lane.may_go(ticket):
            queue.pump()

    def leave(self, ticket: GatewayTicket, usage: TokenUsage, output_events: int) -> None:
        """A request is over, however it ended and wherever it was."""
        queue = ticket.queue
        claim, ticket.claim = ticket.claim, None
        if claim is not None:  # nobody took it over
            claim.free()
        queue.running.pop(ticket, None)
        output_tokens = usage.output_tokens
        queue.lane.leave(ticket, usage.input_tokens, output_events if output_tokens is None else output_tokens)
        if queue.lane.waiting:
            queue.wake()

    def _must_wait(
        self, ticket: GatewayTicket, caller: Caller, now: float, headers: Mapping[bytes, bytes]
    ) -> GatewayTicket:
        """It cannot go now: do what its tenant has declared for that, then let it wait where it has come to."""
        queue, request = ticket.queue, ticket.request
        ticket.group, ticket.key = queue.finder.group(request), waits_with(headers)
        if caller.degrade:
            wait_s = queue.lane.expected_wait_s(ticket.flow, now)
            step = degrade(caller.degrade, request.requested_model, request.output_limit_tokens, wait_s)
            cheaper = self._cheaper(ticket, step, caller)
            entered = None if cheaper is None else self._enter_cheaper(cheaper, ticket, step, caller, now)
            if entered is not None:
                return entered
            if step.is_refused:
                raise _ladder_refusal(queue, now)
            if step.output_tokens is not None and ticket.group is not None:
                shortened = Degraded(output_tokens=step.output_tokens)
                _note_degraded(ticket, request.with_output_limit(step.output_tokens), shortened, "output_tokens")
        refused = queue.lane.enter(ticket, now)
        if refused is not None:
            raise refusal_of(queue, ticket, refused)
        return ticket

    def _cheaper(self, ticket: GatewayTicket, step: Degraded, caller: Caller) -> ModelQueue | None:
        """The queue of the cheaper model, where the request can be sent there: not one in an engine's own words, and
        not while none of its endpoints is up.
        """
        if step.model is None or ticket.group is None or not caller.may_use(step.model):
            return None
        is_up = any(endpoint.is_usable for endpoint in self.endpoints_of(step.model))
        return self._queues.get(step.model) if is_up else None

    def _enter_cheaper(
        self, queue: ModelQueue, before: GatewayTicket, step: Degraded, caller: Caller, now: float
    ) -> GatewayTicket | None:
        """Let it in there; None where that is no way out either, and it had better wait where it is."""
        assert step.model is not None
        request = before.request.for_model(step.model)
        if step.output_tokens is not None:
            request = request.with_output_limit(step.output_tokens)
        flow = queue.lane.flow(caller.tenant, request.request_class, caller.weight)
        ticket = GatewayTicket(flow, now, request.estimated_input_tokens, len(request.body), before.deadline_mono_s)
        ticket.request, ticket.queue, ticket.held, ticket.degraded = request, queue, None, None
        ticket.degraded = step
        try:
            ticket.group, ticket.key = queue.finder.group(request), before.key
            claim = queue.lane.try_start(ticket, now)
        except RequestError:  # none of its endpoints takes this one
            return None
        if claim is not None:
            ticket.claim = claim
            queue.running[ticket] = None
        elif queue.lane.enter(ticket, now) is not None:
            return None
        before.queue.degraded["model"] = before.queue.degraded.get("model", 0) + 1
        return ticket

    # --- clocks

    def sweep(self, now_mono_s: float) -> None:
        """Charge what has streamed, end who has waited too long, and see what has changed; every SWEEP_INTERVAL_S."""
        for queue in list(self._limited.values()):
            lane = queue.lane
            for ticket in queue.running:
                held = ticket.held if isinstance(ticket, GatewayTicket) else None
                if held is None:
                    continue
                lane.charge_output(ticket, held.output_tokens)
                claim = held.claim
                is_unseen = claim is not None and claim.is_prefilling and not held.request.is_stream
                if claim is not None and is_unseen and now_mono_s - held.attempt_mono_s > UNSEEN_PREFILL_S:
                    claim.first_token()
            for ticket in lane.expired(now_mono_s):
                self._expire(queue, ticket, now_mono_s)
            lane.forget_idle(now_mono_s)
        for endpoint, room in self._rooms.items():
            if room.last is not None and endpoint.load.fresh(now_mono_s) is None:
                room.went_stale()
        self._refresh()

    def _expire(self, queue: ModelQueue, ticket: QueueTicket, now_mono_s: float) -> None:
        held = ticket.held if isinstance(ticket, GatewayTicket) else None
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
                held = ticket.held if isinstance(ticket, GatewayTicket) else None
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


def _is_full(endpoint: Endpoint) -> bool:
    limit = endpoint.load.sequences_limit
    return limit is not None and endpoint.in_flight >= limit


def _no_endpoints(_pool: str) -> tuple[Endpoint, ...]:
    return ()


def _note_degraded(ticket: GatewayTicket, request: InferenceRequest, step: Degraded, what: str) -> None:
    ticket.request, ticket.degraded = request, step
    counted = ticket.queue.degraded
    counted[what] = counted.get(what, 0) + 1


def _ladder_refusal(queue: ModelQueue, now: float) -> RequestError:
    retry_after_s = queue.lane.drain.retry_after_s(queue.lane.waiting, now)
    queue.refused["ladder"] = queue.refused.get("ladder", 0) + 1
    message = (
        f"model {queue.model!r} has {queue.lane.waiting} requests waiting, and this tenant's requests are refused "
        "rather than to wait so long (tenants.<name>.degrade)"
    )
    return RequestError(ErrorCode.SATURATED, message, retry_after_s=retry_after_s)


def waits_with(headers: Mapping[bytes, bytes]) -> str | None:
    """Return what the request has in common with those that wait on it; None: nothing."""
    for name in KEY_HEADERS:
        value = headers.get(name)
        if value:
            return value[:KEY_BYTES].decode("latin-1")
    return None
