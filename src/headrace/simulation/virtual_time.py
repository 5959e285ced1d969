"""Many simulated engines in virtual time: arrivals in, one record per request out, in the order of events.

Engines take whole stretches of decode steps at once; an arrival cuts the stretch of the engine it goes to.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.outcome import Ended, FinishReason, LoadSnapshot, Refusal, mean_gap_s
from headrace.simulation.request import SimulatedRequest


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """What became of one request, as an observer beside the engine sees it. Times are virtual seconds."""

    request_id: str
    engine: int
    arrived_at_s: float
    input_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    admitted_at_s: float | None = None
    first_token_at_s: float | None = None
    ended_at_s: float | None = None
    finish_reason: FinishReason | None = None
    refusal: Refusal | None = None

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_at_s is None else self.first_token_at_s - self.arrived_at_s

    @property
    def tpot_s(self) -> float | None:
        return mean_gap_s(self.first_token_at_s, self.ended_at_s, self.output_tokens)


Arrival = tuple[float, SimulatedRequest]
Chooser = Callable[[float, SimulatedRequest], int]
"""Picks the engine for a request that arrives now. It may ask `VirtualFleet.load`."""
EndListener = Callable[[float, RequestRecord], Iterable[Arrival]]
"""Hears of each end and may answer with later arrivals: the next turn of a conversation, a closed loop."""
FirstListener = Callable[[RequestRecord], None]
"""Hears of each first token when the step that brings it begins: `first_token_at_s` is still to come."""


class VirtualFleet:
    """Runs engines over arrivals. Memory: one record a request, kept only while the request lives."""

    def __init__(
        self,
        engines: Sequence[SimulatedEngine],
        choose: Chooser,
        on_end: EndListener | None = None,
        on_first: FirstListener | None = None,
    ) -> None:
        self.engines = engines
        self._choose = choose
        self._on_end = on_end
        self._on_first = on_first
        self._live: dict[str, RequestRecord] = {}
        self._events: list[tuple[float, int, int]] = []
        """When an engine is free again, which, and the version of that plan: a cut stretch makes its event stale."""
        self._versions = [0] * len(engines)
        self._stretches: list[list[float]] = [[] for _ in engines]
        self._is_busy = [False] * len(engines)
        self._later: list[tuple[float, int, SimulatedRequest]] = []
        self._later_count = 0

    def run(self, arrivals: Iterable[Arrival]) -> Iterator[RequestRecord]:
        """Yield each request's record when it ends or is refused, until nothing is left. Arrivals come in order."""
        source = iter(arrivals)
        upcoming = next(source, None)
        while upcoming is not None or self._events or self._later:
            event_at_s = self._events[0][0] if self._events else float("inf")
            later_at_s = self._later[0][0] if self._later else float("inf")
            arrival_at_s = upcoming[0] if upcoming is not None else float("inf")
            if event_at_s < later_at_s and event_at_s < arrival_at_s:  # who arrives just now is seen by the next step
                ended = self._free_engine(*heapq.heappop(self._events))
            elif upcoming is not None and arrival_at_s <= later_at_s:
                ended = self._arrive(*upcoming)
                upcoming = next(source, None)
            else:
                at_s, _count, request = heapq.heappop(self._later)
                ended = self._arrive(at_s, request)
            for record in ended:
                yield record
                self._hear(record)

    def load(self, index: int, now_s: float) -> LoadSnapshot:
        """Return an engine's load now: all steps that have ended are done; of one in progress, if it changes who runs,
        the outcome."""
        ends_at_s = self._stretches[index]
        done = min(bisect_right(ends_at_s, now_s), len(ends_at_s) - 1)
        if done > 0:
            self.engines[index].commit_stretch(done)
            del ends_at_s[:done]
        return self.engines[index].load()

    def _hear(self, record: RequestRecord) -> None:
        if self._on_end is None:
            return
        now_s = record.arrived_at_s if record.ended_at_s is None else record.ended_at_s
        for at_s, request in self._on_end(now_s, record):
            self._later_count += 1
            heapq.heappush(self._later, (at_s, self._later_count, request))

    def _arrive(self, now_s: float, request: SimulatedRequest) -> list[RequestRecord]:
        index = self._choose(now_s, request)
        ended = self._cut_stretch(index, now_s)
        record = RequestRecord(
            request_id=request.request_id, engine=index, arrived_at_s=now_s, input_tokens=request.input_tokens
        )
        record.refusal = self.engines[index].submit(request, now_s)
        if record.refusal is not None:
            ended.append(record)
            return ended
        self._live[request.request_id] = record
        if not self._is_busy[index]:
            self._schedule(index, now_s)
        return ended

    def _cut_stretch(self, index: int, now_s: float) -> list[RequestRecord]:
        """The step in progress ends as planned; what was planned after it is forgotten."""
        ends_at_s = self._stretches[index]
        if not ends_at_s:
            return []
        steps = min(bisect_left(ends_at_s, now_s) + 1, len(ends_at_s))
        self._stretches[index] = []
        ended = self._commit(index, steps, ends_at_s[steps - 1])
        self._schedule(index, ends_at_s[steps - 1])
        return ended

    def _schedule(self, index: int, at_s: float) -> None:
        self._versions[index] += 1
        self._is_busy[index] = True
        heapq.heappush(self._events, (at_s, index, self._versions[index]))

    def _free_engine(self, now_s: float, index: int, version: int) -> list[RequestRecord]:
        """An engine has done what it had planned, and begins what is next."""
        if version != self._versions[index]:
            return []
        stretch, ended = self._stretches[index], list[RequestRecord]()
        if stretch:
            self._stretches[index] = []
            ended = self._commit(index, len(stretch), now_s)
        planned = self.engines[index].plan_stretch(now_s)
        if planned:
            self._stretches[index] = planned
            self._schedule(index, planned[-1])
            return ended
        return ended + self._step(index, now_s)

    def _commit(self, index: int, steps: int, now_s: float) -> list[RequestRecord]:
        return [self._end(ended, now_s) for ended in self.engines[index].commit_stretch(steps)]

    def _step(self, index: int, now_s: float) -> list[RequestRecord]:
        step = self.engines[index].step(now_s, has_emissions=False)
        if step is None:
            self._is_busy[index] = False
            return []
        ends_at_s = now_s + step.duration_s
        self._schedule(index, ends_at_s)
        for first in step.first_tokens:
            record = self._live[first.request_id]
            record.first_token_at_s = ends_at_s
            record.admitted_at_s = first.admitted_at_s
            record.cached_tokens = first.cached_tokens
            if self._on_first is not None:
                self._on_first(record)
        return [self._end(ended, ends_at_s) for ended in step.ended]

    def _end(self, ended: Ended, at_s: float) -> RequestRecord:
        record = self._live.pop(ended.request_id)
        record.ended_at_s = at_s
        record.finish_reason = ended.finish_reason
        record.output_tokens = ended.output_tokens
        return record
