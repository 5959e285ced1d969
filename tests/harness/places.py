"""Endpoints without engines, and a queue over them: what the core of admission is tested with."""

from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules
from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.lane import Lane, LaneRules, Refused
from headrace.gateway.admission.core.room import has_room
from headrace.gateway.endpoints.load import Claim, EndpointLoad

STANDARD = RequestClass.STANDARD


class FakePlace:
    """An endpoint of so many places."""

    def __init__(self, places: int | None) -> None:
        self.in_flight = 0
        self.load = EndpointLoad()
        self.load.sequences_limit = places
        self.load.has_limit = places is not None


def rules(**changes: object) -> LaneRules:
    """Plain rules: no shares, no headroom, bounds that nobody meets."""
    plain: dict[str, object] = {
        "bands": {each: BandRules(reserved_ratio=0.0, starvation_s=1e9) for each in BANDS},
        "longest_wait_s": dict.fromkeys(BANDS, 1e9),
        "tenant_requests": 10_000,
        "tenant_bytes": 1 << 40,
        "pool_requests": 10_000,
        "pool_bytes": 1 << 40,
        "headroom_ratio": 0.0,
    }
    return LaneRules(**{**plain, **changes})  # pyright: ignore[reportArgumentType]


class FakeTicket(QueueTicket):
    """A request that may be bound to one of the places."""

    __slots__ = ("place",)

    place: int | None


class FakePool:
    """A lane over fake places, and who is in service there."""

    def __init__(self, *places: int | None, **changes: object) -> None:
        self.places = [FakePlace(each) for each in places]
        self.lane = Lane(rules(**changes), self.find)
        if all(each is not None for each in places):
            self.lane.sequences_limit = sum(each or 0 for each in places)
        self.running: dict[QueueTicket, Claim] = {}
        self.started: list[QueueTicket] = []
        """In the order of their start."""

    def find(self, ticket: QueueTicket, is_light: bool, is_contended: bool, /) -> FakePlace | None:
        """The least loaded place with room."""
        assert isinstance(ticket, FakeTicket)
        places = self.places if ticket.place is None else [self.places[ticket.place]]
        found = [
            place
            for place in places
            if has_room(place, ticket.input_tokens, is_light, is_contended, self.lane.rules.headroom_ratio)
        ]
        return min(found, key=lambda place: place.in_flight) if found else None

    def ticket(
        self,
        tenant: str = "a",
        at_s: float = 0.0,
        *,
        tokens: int = 100,
        request_class: RequestClass = STANDARD,
        weight: float = 1.0,
        place: int | None = None,
        **more: object,
    ) -> QueueTicket:
        flow = self.lane.flow(tenant, request_class, weight)
        group = self if place is None else None
        ticket = FakeTicket(flow, at_s, tokens, group=group, **more)  # pyright: ignore[reportArgumentType]
        ticket.place = place
        return ticket

    def come(self, tenant: str = "a", at_s: float = 0.0, **more: object) -> QueueTicket:
        """A request comes; it starts if it can. Bounds must not be met."""
        ticket = self.ticket(tenant, at_s, **more)  # pyright: ignore[reportArgumentType]
        found = self.enter(ticket, at_s)
        assert not isinstance(found, Refused), found
        if found is not None:
            self._started(ticket, found)
        elif self.lane.may_go(ticket):
            self.pump(at_s)
        return ticket

    def enter(self, ticket: QueueTicket, at_s: float) -> Claim | Refused | None:
        """Its claim, why the queue is full, or None where it waits."""
        return self.lane.try_start(ticket, at_s) or self.lane.enter(ticket, at_s)

    def pump(self, now_s: float = 0.0) -> None:
        for ticket, claim in self.lane.pump(now_s):
            self._started(ticket, claim)

    def finish(self, ticket: QueueTicket, now_s: float = 0.0, *, output_tokens: int | None = None) -> None:
        """A request in service ends, and whoever may go now starts."""
        self.running.pop(ticket).free()
        self.lane.leave(ticket, ticket.input_tokens, output_tokens)
        self.pump(now_s)

    def finish_first(self, now_s: float = 0.0, *, output_tokens: int | None = None) -> QueueTicket:
        ticket = next(iter(self.running))
        self.finish(ticket, now_s, output_tokens=output_tokens)
        return ticket

    def _started(self, ticket: QueueTicket, claim: Claim) -> None:
        self.running[ticket] = claim
        self.started.append(ticket)


def tenants(tickets: list[QueueTicket]) -> str:
    return "".join(ticket.flow.tenant for ticket in tickets)
