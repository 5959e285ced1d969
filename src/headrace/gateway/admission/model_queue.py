"""The queue of one model: its lane, and what runs of it. What it needs of routing and forwarding is declared here.

Counterpart: `queue.py`, which keeps one per model and lets requests in.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from headrace.declaration.queue_plan import QueuePlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.ladder import Degraded
from headrace.gateway.admission.core.lane import Lane, QueueBound, Refused
from headrace.gateway.admission.core.room import has_room
from headrace.gateway.admission.queue_rules import lane_rules
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim


class Named(Protocol):
    """A request's account, as the queue sees it."""

    request_id: str


class Held(Protocol):
    """A request on its way, as the queue sees it: forwarding's delivery."""

    request: InferenceRequest

    @property
    def claim(self) -> Claim | None: ...

    @property
    def attempt_mono_s(self) -> float: ...

    @property
    def account(self) -> Named: ...

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


class GatewayTicket(QueueTicket):
    """One request in a queue of the gateway."""

    __slots__ = ("degraded", "held", "queue", "request")

    request: InferenceRequest
    """As it is sent, degraded or not."""
    queue: "ModelQueue"
    """Where it is."""
    held: Held | None
    """Its delivery; None in the turn before that is made."""
    degraded: Degraded | None
    """What was done with it so that it need not be refused."""


class Finder(Protocol):
    """Routing, as the queue sees it."""

    def choose(self, request: InferenceRequest) -> Endpoint:
        """Return the best endpoint, room or not. Raises: RequestError where none could be chosen at all."""
        ...

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

    def _find(self, ticket: QueueTicket, is_light: bool, is_contended: bool, /) -> Endpoint | None:
        assert isinstance(ticket, GatewayTicket)
        request, tokens, ratio = ticket.request, ticket.input_tokens, self.lane.rules.headroom_ratio
        try:
            best = self.finder.choose(request)
            if not best.load.has_limit or has_room(best, tokens, is_light, is_contended, ratio):
                return best
            return self.finder.find(
                request,
                lambda endpoint: (
                    not endpoint.load.has_limit or has_room(endpoint, tokens, is_light, is_contended, ratio)
                ),
            )
        except RequestError:
            if self._is_pumping or self.lane.waiting:
                return None  # it has been let in: it waits for an endpoint to come back, as long as it may
            raise


def refusal_of(queue: ModelQueue, ticket: QueueTicket, refused: Refused) -> RequestError:
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


def _held(ticket: QueueTicket) -> Held | None:
    assert isinstance(ticket, GatewayTicket)
    return ticket.held
