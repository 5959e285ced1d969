"""Flows: the work of one tenant in one band, ordered among its like by the tokens each was served, by weight.

The counters are those of the virtual token counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI
2024): input charged at dispatch, output as it streams, a returning tenant lifted to the least of those that wait.
"""

import heapq
from collections.abc import Iterator

from headrace.domain.request import RequestClass
from headrace.gateway.endpoints.load import Claim

OUTPUT_WEIGHT = 2.0
"""What one output token counts against one input token. Source: the paper above, which takes it from price lists."""
LOOKS = 64
"""Flows looked at before a search for somebody who may go is given up. Chosen: enough for those whose endpoint is full
while another is not, and bounded whatever waits."""

PINNED_LOOKS = 8
"""How many of one tenant are looked at behind one that waits for an endpoint of its own. Chosen."""
SLACK = 64
"""Entries of tickets that have left, kept until they come to the top or are more than those that wait. Chosen."""


class QueueTicket:
    """One request in a queue, and later in service. The shell's own kind of it holds the request itself.

    Units: tokens, monotonic seconds. By position, as one is made for each request.
    """

    __slots__ = (
        "body_bytes",
        "charged_output_tokens",
        "claim",
        "deadline_mono_s",
        "flow",
        "group",
        "input_tokens",
        "is_waiting",
        "key",
        "since_mono_s",
        "was_queued",
        "withdrawals",
    )

    def __init__(
        self,
        flow: "Flow",
        since_mono_s: float,
        input_tokens: int = 0,
        body_bytes: int = 0,
        deadline_mono_s: float | None = None,
        group: object = None,
        key: str | None = None,
    ) -> None:
        self.flow = flow
        self.since_mono_s = since_mono_s
        self.input_tokens = input_tokens
        self.body_bytes = body_bytes
        self.deadline_mono_s = deadline_mono_s
        """The caller's own; waiting past it is pointless."""
        self.group = group
        """Requests of one group can go to the same endpoints: where one finds no room, none does. None: on its own."""
        self.key = key
        """Conversation or idempotency key: those of one tenant with the same key wait on one another."""
        self.claim: Claim | None = None
        """Its place at an endpoint, until whoever sends it takes it over."""
        self.is_waiting = False
        self.was_queued = False
        self.withdrawals = 0
        """How often it was sent to an engine and taken back, to give way."""
        self.charged_output_tokens = 0

    def __repr__(self) -> str:
        state = "waiting" if self.is_waiting else "not waiting"
        return (
            f"QueueTicket({self.flow.tenant}, {self.flow.request_class.value}, {state} since {self.since_mono_s:.3f})"
        )


class Flow:
    """One tenant's work in one band of one queue."""

    __slots__ = (
        "_deadline_first",
        "_order",
        "_queue",
        "counter",
        "heap",
        "in_service",
        "is_listed",
        "request_class",
        "seen_mono_s",
        "tenant",
        "waiting",
        "waiting_bytes",
        "weight",
    )

    def __init__(
        self, tenant: str, request_class: RequestClass, weight: float, heap: "FlowHeap", *, deadline_first: bool
    ) -> None:
        self.tenant = tenant
        self.heap = heap
        """Its band's."""
        self.request_class = request_class
        self.weight = weight
        self.counter = 0.0
        """Tokens served, output weighted, divided by `weight`."""
        self.in_service = 0
        self.waiting = 0
        self.waiting_bytes = 0
        self.is_listed = False
        """In its band's heap."""
        self.seen_mono_s = 0.0
        """When a request of it last came."""
        self._queue: list[tuple[float, int, QueueTicket]] = []
        self._order = 0
        self._deadline_first = deadline_first

    def push(self, ticket: QueueTicket, *, in_front: bool = False) -> None:
        """Let a ticket wait: by arrival, or by its deadline where the queue is declared so."""
        self._order += 1
        first = ticket.deadline_mono_s if self._deadline_first else None
        key = float("-inf") if in_front else float("inf") if first is None and self._deadline_first else first or 0.0
        heapq.heappush(self._queue, (key, self._order, ticket))
        ticket.is_waiting = ticket.was_queued = True
        ticket.flow = self
        self.waiting += 1
        self.waiting_bytes += ticket.body_bytes

    def remove(self, ticket: QueueTicket) -> None:
        """Let a waiting ticket go, wherever it stands."""
        ticket.is_waiting = False
        self.waiting -= 1
        self.waiting_bytes -= ticket.body_bytes
        queue = self._queue
        if queue and queue[0][2] is ticket:
            heapq.heappop(queue)
        elif len(queue) > 2 * self.waiting + SLACK:
            self._queue = [entry for entry in queue if entry[2].is_waiting and entry[2].flow is self]
            heapq.heapify(self._queue)

    def first(self) -> QueueTicket | None:
        """Return who is next, without taking it out."""
        queue = self._queue
        while queue:
            ticket = queue[0][2]
            if ticket.is_waiting and ticket.flow is self:
                return ticket
            heapq.heappop(queue)
        return None

    def iter_any_order(self) -> Iterator[QueueTicket]:
        """All that wait, cheaply: for looking at each."""
        for _, _, ticket in self._queue:
            if ticket.is_waiting and ticket.flow is self:
                yield ticket

    def iter_waiting(self) -> Iterator[QueueTicket]:
        """All that wait, in order."""
        seen: set[int] = set()
        for _, _, ticket in sorted(self._queue, key=lambda entry: entry[:2]):
            if ticket.is_waiting and ticket.flow is self and id(ticket) not in seen:
                seen.add(id(ticket))
                yield ticket

    def iter_next(self) -> Iterator[QueueTicket]:
        """Who may go next: the first, and where that one can only go to an endpoint of its own, some behind it."""
        first = self.first()
        if first is None:
            return
        yield first
        if first.group is None:
            for ticket, _ in zip(self.iter_waiting(), range(PINNED_LOOKS), strict=False):
                if ticket is not first:
                    yield ticket

    def charge(self, tokens: float) -> None:
        self.counter += tokens / self.weight

    def __repr__(self) -> str:
        return (
            f"Flow({self.tenant}, {self.request_class.value}, waiting={self.waiting}, in_service={self.in_service}, "
            f"counter={self.counter:.0f})"
        )


class FlowHeap:
    """The flows of one band that have work waiting, least served first. Counters may grow while a flow is listed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Flow]] = []
        self._order = 0
        self.floor = 0.0
        """The counter of the flow that was served last."""

    def enter(self, flow: Flow, *, is_back: bool = False) -> None:
        """A flow without waiting work gets some: lifted, so that it cannot save up what it did not use.

        `is_back`: the work was here before, and its flow has not been away.
        """
        least = self.least()
        if not is_back:
            flow.counter = max(flow.counter, self.floor if least is None else max(self.floor, least.counter))
        if not flow.is_listed:
            self._push(flow, rank=0)

    def iter_least(self) -> Iterator[Flow]:
        """Yield the flows from the least served on, at most LOOKS of them; the heap is whole again afterwards."""
        aside: list[Flow] = []
        try:
            while len(aside) < LOOKS and (flow := self.least()) is not None:
                heapq.heappop(self._heap)
                aside.append(flow)
                yield flow
        finally:
            for flow in aside:
                self._push(flow, rank=1)

    def least(self) -> Flow | None:
        """Return the flow with the lowest counter, with the top of the heap put right."""
        heap = self._heap
        while heap:
            counter, _, _, flow = heap[0]
            if not flow.waiting:
                heapq.heappop(heap)
                flow.is_listed = False
            elif flow.counter > counter:
                self._order += 1
                heapq.heapreplace(heap, (flow.counter, 1, self._order, flow))
            else:
                return flow
        return None

    def _push(self, flow: Flow, *, rank: int) -> None:
        """`rank` 0 wins among equals: who has just come back goes before those who were served all the time."""
        flow.is_listed = True
        self._order += 1
        heapq.heappush(self._heap, (flow.counter, rank, self._order, flow))
