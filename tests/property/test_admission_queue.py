"""What always holds of a queue, whatever comes, ends, is cancelled, or gives way, in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.harness.places import FakePool

from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules
from headrace.gateway.admission.core.flow import QueueTicket
from headrace.gateway.admission.core.lane import QueueBound, Refused
from headrace.gateway.admission.core.room import headroom_of
from headrace.gateway.endpoints.load import Claim

PLACES = (4, 9)
HEADROOM = 1 / 8
TENANT_MOST, POOL_MOST = 6, 14
BOUND_S = 20.0
WEIGHTS = {"a": 1.0, "b": 3.0, "c": 0.5}


class Queue(RuleBasedStateMachine):
    """One queue over two endpoints, beside plain sets of who should be where."""

    def __init__(self) -> None:
        super().__init__()
        bands = {each: BandRules(reserved_ratio=0.1, starvation_s=BOUND_S) for each in BANDS}
        self.pool = FakePool(
            *PLACES, bands=bands, tenant_requests=TENANT_MOST, pool_requests=POOL_MOST, headroom_ratio=HEADROOM
        )
        self.now_s = 0.0
        self.waiting: set[QueueTicket] = set()
        self.started: dict[QueueTicket, int] = {}
        """How often each was started."""
        self.over: set[QueueTicket] = set()

    @rule(
        tenant=st.sampled_from("abc"),
        request_class=st.sampled_from(BANDS),
        tokens=st.integers(0, 5000),
        key=st.sampled_from([None, None, "k1", "k2"]),
        place=st.sampled_from([None, None, None, 0, 1]),
    )
    def come(self, tenant: str, request_class: RequestClass, tokens: int, key: str | None, place: int | None) -> None:
        pool, lane = self.pool, self.pool.lane
        ticket = pool.ticket(
            tenant,
            self.now_s,
            tokens=tokens,
            request_class=request_class,
            weight=WEIGHTS[tenant],
            place=place,
            key=key,
        )
        of_tenant = sum(other.flow.tenant == tenant for other in self.waiting)
        found = pool.enter(ticket, self.now_s)
        if isinstance(found, Refused):
            assert of_tenant == TENANT_MOST or len(self.waiting) == POOL_MOST
            assert found.bound is (QueueBound.TENANT_REQUESTS if of_tenant == TENANT_MOST else QueueBound.POOL_REQUESTS)
        elif isinstance(found, Claim):
            assert not self.waiting
            self._start(ticket, found)
        else:
            self.waiting.add(ticket)
            if lane.may_go(ticket):
                self._pump()

    @precondition(lambda self: self.pool.running)
    @rule(which=st.integers(0), output_tokens=st.integers(0, 2000))
    def end(self, which: int, output_tokens: int) -> None:
        running = list(self.pool.running)
        ticket = running[which % len(running)]
        self.pool.lane.charge_output(ticket, output_tokens // 2)
        self.pool.running.pop(ticket).free()
        self.pool.lane.leave(ticket, input_tokens=ticket.input_tokens // 2, output_tokens=output_tokens)
        self.over.add(ticket)
        self._pump()

    @precondition(lambda self: self.pool.running)
    @rule(which=st.integers(0))
    def first_token(self, which: int) -> None:
        running = list(self.pool.running.values())
        running[which % len(running)].first_token()
        self._pump()

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0))
    def cancel(self, which: int) -> None:
        waiting = sorted(self.waiting, key=lambda ticket: (ticket.since_mono_s, ticket.flow.tenant))
        ticket = waiting[which % len(waiting)]
        self.pool.lane.leave(ticket)
        self.waiting.remove(ticket)
        self.over.add(ticket)
        self._pump()

    @rule(after_s=st.floats(0.0, 30.0))
    def time_passes(self, after_s: float) -> None:
        self.now_s += after_s
        self._pump()

    @rule()
    def give_way(self) -> None:
        lane = self.pool.lane
        for ticket in list(lane.iter_withdrawable(self.now_s))[:1]:
            assert ticket.flow.request_class is RequestClass.OFFLINE
            self.pool.running.pop(ticket).free()
            lane.requeue(ticket, self.now_s)
            self.waiting.add(ticket)
            self._pump()

    @invariant()
    def nobody_is_lost_or_doubled(self) -> None:
        """Each request is in exactly one of waiting, running, over; the queue's own numbers agree."""
        lane, running = self.pool.lane, set(self.pool.running)
        assert not self.waiting & running
        assert not self.over & (self.waiting | running)
        assert all(ticket.is_waiting for ticket in self.waiting)
        assert not any(ticket.is_waiting for ticket in running | self.over)
        assert lane.waiting == len(self.waiting) == sum(flow.waiting for flow in lane.iter_flows())
        assert lane.in_service == len(running) == sum(flow.in_service for flow in lane.iter_flows())
        listed = [ticket for flow in lane.iter_flows() for ticket in flow.iter_waiting()]
        assert len(listed) == len(set(listed)) == len(self.waiting)
        assert all(count <= 1 + ticket.withdrawals for ticket, count in self.started.items())

    @invariant()
    def bounds_hold(self) -> None:
        """No endpoint has more than its places, no tenant and not all together wait beyond the queue's bounds."""
        for place, places in zip(self.pool.places, PLACES, strict=True):
            assert 0 <= place.in_flight <= places
            assert place.load.prefill_tokens >= 0
        assert sum(place.in_flight for place in self.pool.places) == len(self.pool.running)
        withdrawn = sum(ticket.withdrawals for ticket in self.waiting)  # taken back, whatever the bound
        assert len(self.waiting) <= POOL_MOST + withdrawn
        for tenant in WEIGHTS:
            assert sum(ticket.flow.tenant == tenant for ticket in self.waiting) <= TENANT_MOST + withdrawn

    @invariant()
    def work_is_conserved(self) -> None:
        """While anybody waits who may go anywhere, no endpoint has a free place but the declared headroom."""
        if any(ticket.group is not None for ticket in self.waiting):
            for place, places in zip(self.pool.places, PLACES, strict=True):
                assert place.in_flight >= places - headroom_of(places, HEADROOM)

    def teardown(self) -> None:
        """Nobody starves: when nothing new comes, everybody who waits is served, and all counters return to zero."""
        for _ in range(len(self.waiting) + len(self.pool.running)):
            self.now_s += 1.0
            if self.pool.running:
                self.end(0, 10)
        assert not self.waiting
        while self.pool.running:
            self.end(0, 10)
        assert (self.pool.lane.waiting, self.pool.lane.in_service, self.pool.lane.waiting_bytes) == (0, 0, 0)
        assert all(place.in_flight == place.load.prefill_tokens == 0 for place in self.pool.places)

    def _pump(self) -> None:
        for ticket, claim in self.pool.lane.pump(self.now_s):
            self.waiting.remove(ticket)
            self._start(ticket, claim)

    def _start(self, ticket: QueueTicket, claim: Claim) -> None:
        self.pool.running[ticket] = claim
        self.started[ticket] = self.started.get(ticket, 0) + 1


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=60, stateful_step_count=50, deadline=None, derandomize=True)
