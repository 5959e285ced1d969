"""The line of requests that have not started, first come first served or by priority."""

import heapq
from abc import ABC, abstractmethod
from collections import OrderedDict

from headrace.simulation.model import AdmissionOrder
from headrace.simulation.sequence import LiveSequence


class WaitingLine(ABC):
    """Requests by their turn. A preempted one comes back to where its arrival puts it."""

    def __init__(self) -> None:
        self.prompt_tokens = 0

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def add(self, sequence: LiveSequence) -> None: ...

    @abstractmethod
    def peek(self) -> LiveSequence:
        """Return whose turn it is; the line must not be empty."""

    @abstractmethod
    def remove(self, sequence: LiveSequence) -> None: ...


class ArrivalLine(WaitingLine):
    """First come, first served. Those preempted are the newest of what runs, and older than all that wait."""

    def __init__(self) -> None:
        super().__init__()
        self._line: OrderedDict[str, LiveSequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, sequence: LiveSequence) -> None:
        self._line[sequence.request_id] = sequence
        self.prompt_tokens += sequence.input_tokens
        if sequence.preemptions:
            self._line.move_to_end(sequence.request_id, last=False)

    def peek(self) -> LiveSequence:
        return next(iter(self._line.values()))

    def remove(self, sequence: LiveSequence) -> None:
        del self._line[sequence.request_id]
        self.prompt_tokens -= sequence.input_tokens


class PriorityLine(WaitingLine):
    """Lowest number first, equal ones by arrival."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[int, int, int, LiveSequence]] = []
        """By priority, then arrival; a number settles ties, as one that was preempted may have two entries."""
        self._added = 0
        self._present: dict[str, LiveSequence] = {}

    def __len__(self) -> int:
        return len(self._present)

    def add(self, sequence: LiveSequence) -> None:
        self._present[sequence.request_id] = sequence
        self.prompt_tokens += sequence.input_tokens
        self._added += 1
        heapq.heappush(self._heap, (sequence.request.priority, sequence.order, self._added, sequence))

    def peek(self) -> LiveSequence:
        while True:
            sequence = self._heap[0][-1]
            if self._present.get(sequence.request_id) is sequence:
                return sequence
            heapq.heappop(self._heap)

    def remove(self, sequence: LiveSequence) -> None:
        del self._present[sequence.request_id]
        self.prompt_tokens -= sequence.input_tokens


def line_for(order: AdmissionOrder) -> WaitingLine:
    return ArrivalLine() if order is AdmissionOrder.FCFS else PriorityLine()
