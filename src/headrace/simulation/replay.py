"""A measured or planned run in the engine model: when each token comes, and what had been computed by then."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.simulation.calibration import Calibration
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.request import SimulatedRequest
from headrace.simulation.samples import EngineShape, PlannedRequest

Work = tuple[float, ...]
"""Counts in the order of `LinearClock`'s coefficients: steps, prompt tokens, pairs, generated positions, KV tokens."""


@dataclass(slots=True, kw_only=True)
class ReplayedRequest:
    """One request's moments, from the run's start, and the work that the engine had done by then.

    `busy_since_s` is when the engine was last idle; work counts from there, so a moment is always
    `busy_since_s` + request overhead + work x coefficients.
    """

    sent_at_s: float
    output_tokens: int
    busy_since_s: float = 0.0
    first_token_at_s: float = 0.0
    ended_at_s: float = 0.0
    first_work: Work = ()
    end_work: Work = ()

    @property
    def ttft_s(self) -> float:
        return self.first_token_at_s - self.sent_at_s

    @property
    def tpot_s(self) -> float | None:
        if self.output_tokens < 2:
            return None
        return (self.ended_at_s - self.first_token_at_s) / (self.output_tokens - 1)


class _RecordingClock:
    """A linear clock that sums up what it was asked for."""

    def __init__(self, clock: LinearClock) -> None:
        self._clock = clock
        self.work = [0.0] * 5

    def reset(self) -> None:
        self.work = [0.0] * 5

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        counts = (1, prefill_tokens, prefill_pairs, decode_tokens, decode_kv_tokens)
        self.work = [before + count for before, count in zip(self.work, counts, strict=True)]
        return self._clock.step_s(
            prefill_tokens, prefill_pairs, prefill_kv_tokens, decode_sequences, decode_tokens, decode_kv_tokens
        )


def replay(shape: EngineShape, calibration: Calibration, plan: Sequence[PlannedRequest]) -> list[ReplayedRequest]:
    """Run a plan with prompts that share nothing, in virtual time; return its requests in the plan's order."""
    clock = _RecordingClock(calibration.clock())
    engine = SimulatedEngine(shape.model(clock))
    overhead_s = calibration.request_overhead_s
    requests = [ReplayedRequest(sent_at_s=planned.sent_at_s, output_tokens=planned.output_tokens) for planned in plan]
    upcoming = sorted(range(len(plan)), key=lambda index: plan[index].sent_at_s)
    now_s = busy_since_s = 0.0
    is_idle = True
    while True:
        while upcoming and (is_idle or plan[upcoming[0]].sent_at_s <= now_s):
            index = upcoming.pop(0)
            if is_idle:
                now_s = busy_since_s = max(now_s, plan[index].sent_at_s)
                clock.reset()
                is_idle = False
            _submit(engine, plan[index], index, now_s)
        step = engine.step(now_s)
        if step is None:
            if not upcoming:
                return requests
            is_idle = True
            continue
        now_s += step.duration_s
        for first in step.first_tokens:
            request = requests[int(first.request_id)]
            request.busy_since_s, request.first_work = busy_since_s, tuple(clock.work)
            request.first_token_at_s = now_s + overhead_s
        for ended in step.ended:
            request = requests[int(ended.request_id)]
            request.ended_at_s, request.end_work = now_s + overhead_s, tuple(clock.work)


def _submit(engine: SimulatedEngine, planned: PlannedRequest, index: int, now_s: float) -> None:
    """Errors: ValueError if the engine's shape refuses the request."""
    start = index * 1_000_000
    request = SimulatedRequest(
        request_id=str(index),
        prompt_tokens=range(start, start + planned.input_tokens),
        output_tokens=planned.output_tokens,
    )
    refusal = engine.submit(request, now_s)
    if refusal is not None:
        raise ValueError(f"the shape refuses request {index}: {refusal}")
