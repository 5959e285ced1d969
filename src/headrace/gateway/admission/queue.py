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
from headrace.gateway.admission.core.lane import Refused
from headrace.gateway.admission.core.room import Room
from headrace.gateway.admission.model_queue import (
    Finder,
    Held,
    ModelQueue,
    Waiting,
    held_of,
    note_step,
    queue_of,
    refusal_of,
    request_of,
)
from headrace.gateway.admission.queue_rules import declared_room, lane_rules
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim

UNSEEN_PREFILL_S = 0.5
"""A whole answer shows no first token: its prompt is taken to be computed after so long. Chosen: longer than most
prompts take; it only bounds how many prompts are sent at once while several tenants use a pool."""


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
                raise refusal_of(queue, ticket, found)
        else:
            return self._degrade(queue, ticket, found, caller, now)
        return ticket

    def attach(self, ticket: QueueTicket, held: Held, name: str) -> Claim | None:
        """The delivery of a ticket is there: its claim is handed over; None: hold it, and call `wait`."""
        payload = ticket.payload
        assert isinstance(payload, Waiting)
        payload.held, payload.name = held, name
        claim, ticket.claim = ticket.claim, None
        return claim

    def wait(self, ticket: QueueTicket) -> None:
        """A held delivery is started when its turn comes, perhaps at once."""
        queue = queue_of(ticket)
        if queue.lane.may_go(ticket):
            queue.pump()

    def leave(self, ticket: QueueTicket, usage: TokenUsage, output_events: int) -> None:
        """A request is over, however it ended and wherever it was."""
        queue = queue_of(ticket)
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
        request = request_of(ticket)
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
            raise refusal_of(queue, ticket, found)
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
            note_step(ticket, request.with_output_limit(step.output_tokens), step)
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
        note_step(ticket, request, step)
        found = queue.lane.enter(ticket, now)
        if isinstance(found, Refused):
            raise refusal_of(queue, ticket, found)
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
                held = held_of(ticket)
                if held is None:
                    continue
                lane.charge_output(ticket, held.output_tokens)
                claim = held.claim
                is_unseen = claim is not None and claim.is_prefilling and not held.request.is_stream
                if claim is not None and is_unseen and now_mono_s - held.attempt_mono_s > UNSEEN_PREFILL_S:
                    claim.first_token()
            for ticket in lane.expired(now_mono_s):
                self._expire(queue, ticket, now_mono_s)
        for endpoint, room in self._rooms.items():
            if room.last is not None and endpoint.load.fresh(now_mono_s) is None:
                room.went_stale()
        self._refresh()

    def _expire(self, queue: ModelQueue, ticket: QueueTicket, now_mono_s: float) -> None:
        held = held_of(ticket)
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
                held = held_of(ticket)
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


def _no_endpoints(_pool: str) -> tuple[Endpoint, ...]:
    return ()
