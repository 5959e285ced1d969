"""One pool in virtual time: arrivals, the gateway's queue (or none), and engines that step.

Without a queue requests go straight to the engine with the fewest in flight, as a gateway does that leaves the order
to engines: first come, first served.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.lane import Lane, LaneRules
from headrace.gateway.admission.core.room import DeclaredRoom, Room, has_room
from headrace.gateway.endpoints.load import Claim, EndpointLoad
from headrace.rehearsal.workload import Arrival
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.model import EngineModel
from headrace.simulation.outcome import Step
from headrace.simulation.request import SimulatedRequest

SWEEP_S = 0.25
"""As often as the gateway looks at its clocks and charges what has streamed (`gateway/http/sweeper.py`)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Served:
    """One request, as its caller saw it. Units: virtual seconds, tokens."""

    arrival: Arrival
    dispatched_at_s: float | None = None
    first_token_at_s: float | None = None
    ended_at_s: float | None = None
    is_refused: bool = False
    withdrawals: int = 0

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_at_s is None else self.first_token_at_s - self.arrival.at_s


class Started(NamedTuple):
    """A request that a band's turn brought to an engine."""

    at_s: float
    served: Served


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run has shown."""

    requests: list[Served]
    """All of them, in the order of arrival."""
    step_s: list[float]
    """Duration of each step of the first engine."""
    served_tokens: dict[str, int] = field(default_factory=dict[str, int])
    """Input and output tokens by tenant, as they were computed, also of requests that were still running at the end."""
    ended_at_s: float = 0.0


class VirtualEngine:
    """A simulated engine as the gateway sees one: a place with a load."""

    def __init__(self, model: EngineModel) -> None:
        self.engine = SimulatedEngine(model)
        self.in_flight = 0
        self.load = EndpointLoad()
        self.is_stepping = False
        self.steps = 0
        self.step: Step | None = None


class VirtualTicket(QueueTicket):
    """One request in the queue."""

    __slots__ = ("served",)

    served: Served


@dataclass(slots=True, kw_only=True, eq=False)
class Running:
    """One request at an engine."""

    served: Served
    ticket: QueueTicket | None
    claim: Claim
    place: VirtualEngine
    first_step: int = 0
    """0: no token yet."""

    @property
    def output_tokens(self) -> int:
        """Tokens so far: one a step from the first on, as nothing is preempted here."""
        if not self.first_step:
            return 0
        return min(self.served.arrival.output_tokens, self.place.steps - self.first_step + 1)


class VirtualPool:
    """Runs one workload. `rules` None: no queue in the gateway."""

    def __init__(self, engines: Sequence[EngineModel], rules: LaneRules | None, room: DeclaredRoom) -> None:
        self._places = [VirtualEngine(model) for model in engines]
        self._lane = Lane(rules, self._find) if rules is not None else None
        if self._lane is not None and room.share is not None:
            self._lane.sequences_limit = room.share * len(engines)
        self._headroom_ratio = rules.headroom_ratio if rules is not None else 0.0
        if rules is not None:
            for place in self._places:
                Room(place.load, room)
        self._events: list[tuple[float, int, VirtualEngine | None]] = []
        self._count = 0
        self._running: dict[str, Running] = {}
        self._tickets: dict[int, Running] = {}
        self._requests = 0
        self.outcome = Outcome(requests=[], step_s=[])

    def run(self, arrivals: Iterable[Arrival], *, until_s: float) -> Outcome:
        """Take all arrivals, and stop at `until_s`, whatever is left then."""
        source = iter(arrivals)
        upcoming = next(source, None)
        if self._lane is not None:
            self._push(SWEEP_S, None)
        now_s = 0.0
        while upcoming is not None or self._events:
            event_at_s = self._events[0][0] if self._events else float("inf")
            if upcoming is not None and upcoming.at_s <= event_at_s:
                now_s = upcoming.at_s
                if now_s >= until_s:
                    break
                self._arrive(upcoming, now_s)
                upcoming = next(source, None)
                continue
            now_s, _, place = heapq.heappop(self._events)
            if now_s >= until_s:
                break
            if place is not None:
                self._step_ended(place, now_s)
            elif self._sweep(now_s) or upcoming is not None:
                self._push(now_s + SWEEP_S, None)
        self.outcome.ended_at_s = min(now_s, until_s)
        for running in self._running.values():
            self._count_tokens(running)
        return self.outcome

    # --- requests

    def _arrive(self, arrival: Arrival, now_s: float) -> None:
        served = Served(arrival=arrival)
        self.outcome.requests.append(served)
        lane = self._lane
        if lane is None:
            place = min(self._places, key=lambda each: each.in_flight)
            self._send(served, None, Claim(place, arrival.input_tokens), now_s)
            return
        flow = lane.flow(arrival.load.tenant, arrival.load.request_class, arrival.load.weight)
        ticket = VirtualTicket(flow, now_s, arrival.input_tokens, group=lane)
        ticket.served = served
        claim = lane.try_start(ticket, now_s)
        if claim is not None:
            self._send(served, ticket, claim, now_s)
        elif lane.enter(ticket, now_s) is not None:
            served.is_refused = True
        elif lane.may_go(ticket):
            self._pump(lane, now_s)

    def _pump(self, lane: Lane, now_s: float) -> None:
        for ticket, claim in lane.pump(now_s):
            assert isinstance(ticket, VirtualTicket)
            self._send(ticket.served, ticket, claim, now_s)
        for ticket in lane.iter_withdrawable(now_s):
            if self._withdraw(ticket, now_s):
                lane.requeue(ticket, now_s)
                self._pump(lane, now_s)
                return

    def _withdraw(self, ticket: QueueTicket, now_s: float) -> bool:
        """As a delivery does it: only where nothing of an answer has come."""
        running = self._tickets.get(id(ticket))
        if running is None or running.first_step:
            return False
        key = next(key for key, each in self._running.items() if each is running)
        running.place.engine.cancel(key)
        del self._running[key], self._tickets[id(ticket)]
        running.claim.free()
        running.served.withdrawals += 1
        running.served.dispatched_at_s = None
        return True

    def _find(self, ticket: QueueTicket, is_light: bool, is_contended: bool, /) -> VirtualEngine | None:
        best: VirtualEngine | None = None
        for place in self._places:
            if (best is None or place.in_flight < best.in_flight) and has_room(
                place, ticket.input_tokens, is_light, is_contended, self._headroom_ratio
            ):
                best = place
        return best

    def _send(self, served: Served, ticket: QueueTicket | None, claim: Claim, now_s: float) -> None:
        place, arrival = claim.place, served.arrival
        assert isinstance(place, VirtualEngine)
        served.dispatched_at_s = now_s
        self._requests += 1
        key = str(self._requests)
        request = SimulatedRequest(
            request_id=key, prompt_tokens=range(arrival.input_tokens), output_tokens=arrival.output_tokens
        )
        if place.engine.submit(request, now_s) is not None:
            served.is_refused = True
            claim.free()
            if self._lane is not None and ticket is not None:
                self._lane.leave(ticket)
            return
        running = Running(served=served, ticket=ticket, claim=claim, place=place)
        self._running[key] = running
        if ticket is not None:
            self._tickets[id(ticket)] = running
        if not place.is_stepping:
            self._begin_step(place, now_s)

    # --- engines

    def _begin_step(self, place: VirtualEngine, now_s: float) -> None:
        step = place.engine.step(now_s, has_emissions=False)
        place.step = step
        place.is_stepping = step is not None
        if step is not None:
            if place is self._places[0] and not step.is_wait:
                self.outcome.step_s.append(step.duration_s)
            self._push(now_s + step.duration_s, place)

    def _step_ended(self, place: VirtualEngine, now_s: float) -> None:
        step = place.step
        assert step is not None
        place.steps += 1
        for first in step.first_tokens:
            running = self._running.get(first.request_id)
            if running is not None:  # a withdrawn one is not there any more
                running.served.first_token_at_s = now_s
                running.first_step = place.steps
                running.claim.first_token()
        for ended in step.ended:
            running = self._running.pop(ended.request_id, None)
            if running is not None:
                running.served.ended_at_s = now_s
                self._leave(running)
        if self._lane is not None and self._lane.waiting:
            self._pump(self._lane, now_s)
        self._begin_step(place, now_s)

    def _leave(self, running: Running) -> None:
        running.claim.free()
        self._count_tokens(running)
        ticket = running.ticket
        if self._lane is not None and ticket is not None:
            self._tickets.pop(id(ticket), None)
            arrival = running.served.arrival
            self._lane.leave(ticket, input_tokens=arrival.input_tokens, output_tokens=arrival.output_tokens)

    def _count_tokens(self, running: Running) -> None:
        arrival = running.served.arrival
        tokens = running.output_tokens + (arrival.input_tokens if running.first_step else 0)
        counted = self.outcome.served_tokens
        counted[arrival.load.tenant] = counted.get(arrival.load.tenant, 0) + tokens

    # --- clocks

    def _sweep(self, now_s: float) -> bool:
        """Charge what has streamed, drop who has waited too long; whether anything is left to look at."""
        lane = self._lane
        assert lane is not None
        for running in self._running.values():
            if running.ticket is not None:
                lane.charge_output(running.ticket, running.output_tokens)
        for ticket in lane.expired(now_s):
            assert isinstance(ticket, VirtualTicket)
            ticket.served.is_refused = True
            lane.leave(ticket)
        return bool(self._running or lane.waiting)

    def _push(self, at_s: float, place: VirtualEngine | None) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, self._count, place))
