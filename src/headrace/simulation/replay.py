"""A measured or planned run in the engine model: when each token comes, and what had been computed by then."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.simulation.calibration import Calibration
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.model import StepClock
from headrace.simulation.outcome import mean_gap_s
from headrace.simulation.request import SimulatedRequest
from headrace.simulation.samples import EngineShape, PlannedRequest


class StepCounts(NamedTuple):
    """What one step computed; units as in `StepClock`, rows being positions of prompts and sequences together."""

    rows: int
    is_mixed: bool
    """It holds both prompts and generating sequences."""
    prefill_pairs: int
    decode_kv_tokens: int


@dataclass(slots=True, kw_only=True)
class ReplayedRequest:
    """One request's moments, from the run's start. Steps are counted over the run.

    The engine works without a pause from `busy_since_s` on, so a moment is always `busy_since_s` + request overhead +
    the times of the steps from `busy_step` to that moment's.
    """

    sent_at_s: float
    output_tokens: int
    busy_since_s: float = 0.0
    busy_step: int = 0
    first_token_at_s: float = 0.0
    first_step: int = 0
    ended_at_s: float = 0.0
    end_step: int = 0

    @property
    def ttft_s(self) -> float:
        return self.first_token_at_s - self.sent_at_s

    @property
    def tpot_s(self) -> float | None:
        return mean_gap_s(self.first_token_at_s, self.ended_at_s, self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Requests in the order of the plan, and all steps."""

    requests: list[ReplayedRequest]
    steps: list[StepCounts]


@dataclass(slots=True)
class _RecordingClock:
    """A clock that writes down what it was asked for."""

    clock: StepClock
    steps: list[StepCounts] = field(default_factory=list[StepCounts])

    def step_s(
        self,
        prefill_tokens: int,
        prefill_pairs: int,
        prefill_kv_tokens: int,
        decode_sequences: int,
        decode_tokens: int,
        decode_kv_tokens: int,
    ) -> float:
        is_mixed = prefill_tokens > 0 and decode_sequences > 0
        counts = StepCounts(prefill_tokens + decode_tokens, is_mixed, prefill_pairs, decode_kv_tokens)
        self.steps.append(counts)
        return self.clock.step_s(
            prefill_tokens, prefill_pairs, prefill_kv_tokens, decode_sequences, decode_tokens, decode_kv_tokens
        )


def replay(shape: EngineShape, calibration: Calibration, plan: Sequence[PlannedRequest]) -> Replay:
    """Run a plan with prompts that share nothing, in virtual time.

    Errors: ValueError if the engine's shape refuses a request.
    """
    clock = _RecordingClock(calibration.clock())
    engine = SimulatedEngine(shape.model(clock))
    overhead_s = calibration.request_overhead_s
    requests = [ReplayedRequest(sent_at_s=planned.sent_at_s, output_tokens=planned.output_tokens) for planned in plan]
    upcoming = sorted(range(len(plan)), key=lambda index: plan[index].sent_at_s)
    now_s = busy_since_s = 0.0
    busy_step, is_idle = 0, True
    while True:
        while upcoming and (is_idle or plan[upcoming[0]].sent_at_s <= now_s):
            index = upcoming.pop(0)
            if is_idle:
                now_s = busy_since_s = max(now_s, plan[index].sent_at_s)
                busy_step, is_idle = len(clock.steps), False
            _submit(engine, plan[index], index, now_s)
        step = engine.step(now_s)
        if step is None:
            if not upcoming:
                return Replay(requests=requests, steps=clock.steps)
            is_idle = True
            continue
        now_s += step.duration_s
        for first in step.first_tokens:
            request = requests[int(first.request_id)]
            request.busy_since_s, request.busy_step = busy_since_s, busy_step
            request.first_token_at_s, request.first_step = now_s + overhead_s, len(clock.steps)
        for ended in step.ended:
            request = requests[int(ended.request_id)]
            request.ended_at_s, request.end_step = now_s + overhead_s, len(clock.steps)


def _submit(engine: SimulatedEngine, planned: PlannedRequest, index: int, now_s: float) -> None:
    start = index * 1_000_000
    request = SimulatedRequest(
        request_id=str(index),
        prompt_tokens=range(start, start + planned.input_tokens),
        output_tokens=planned.output_tokens,
    )
    refusal = engine.submit(request, now_s)
    if refusal is not None:
        raise ValueError(f"the shape refuses request {index}: {refusal}")
