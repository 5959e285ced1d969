"""Small engines and complete runs for the tests of the engine model."""

from dataclasses import dataclass, field
from zlib import crc32

from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.model import CacheKind, EngineModel, KvModel, SchedulingBounds
from headrace.simulation.outcome import FinishReason, FirstToken, Refusal, Step
from headrace.simulation.request import SimulatedRequest

CLOCK = LinearClock(fixed_s=1.0, prefill_token_s=0.01, decode_token_s=0.1)


def small_model(
    *,
    blocks: int = 64,
    block_tokens: int = 4,
    kind: CacheKind = CacheKind.BLOCK_HASH,
    is_prefix_cached: bool = True,
    bytes_per_token: int = 100,
    clock: LinearClock = CLOCK,
    host=None,
    speculation=None,
    **bounds,
) -> EngineModel:
    """An engine of 4 sequences, 16 tokens a step and a context of 100, unless a test says otherwise."""
    return EngineModel(
        clock=clock,
        bounds=SchedulingBounds(**{"max_sequences": 4, "max_batched_tokens": 16, "context_tokens": 100, **bounds}),
        kv=KvModel(
            total_blocks=blocks,
            block_tokens=block_tokens,
            kind=kind,
            is_prefix_cached=is_prefix_cached,
            bytes_per_token=bytes_per_token,
        ),
        host=host,
        speculation=speculation,
    )


def request(name: str, prompt=8, output: int = 4, **fields) -> SimulatedRequest:
    """A request with a prompt of its own (a length) or of given tokens."""
    tokens = (
        tuple(prompt)
        if not isinstance(prompt, int)
        else tuple(1000 * (crc32(name.encode()) % 9973) + i for i in range(prompt))
    )
    return SimulatedRequest(request_id=name, prompt_tokens=tokens, output_tokens=output, **fields)


@dataclass
class Run:
    """What came out of an engine that ran until it was idle."""

    tokens: dict[str, int] = field(default_factory=dict)
    finish: dict[str, FinishReason] = field(default_factory=dict)
    firsts: dict[str, FirstToken] = field(default_factory=dict)
    first_at_s: dict[str, float] = field(default_factory=dict)
    end_at_s: dict[str, float] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    now_s: float = 0.0

    def take(self, step: Step) -> None:
        """Count a step's emissions; each request ends at most once and gets nothing afterwards."""
        self.steps.append(step)
        self.now_s += step.duration_s
        for first in step.first_tokens:
            assert first.request_id not in self.firsts
            self.firsts[first.request_id] = first
            self.first_at_s[first.request_id] = self.now_s
        for emission in step.emissions:
            assert emission.request_id not in self.finish, f"{emission} after its end"
            self.tokens[emission.request_id] = self.tokens.get(emission.request_id, 0) + emission.tokens
            if emission.finish_reason is not None:
                self.finish[emission.request_id] = emission.finish_reason
                self.end_at_s[emission.request_id] = self.now_s


def run_until_idle(engine: SimulatedEngine, run: Run | None = None, most_steps: int = 10_000) -> Run:
    """Step until there is nothing to do."""
    run = run or Run()
    for _ in range(most_steps):
        step = engine.step(run.now_s)
        if step is None:
            return run
        run.take(step)
    raise AssertionError(f"not idle after {most_steps} steps")


def run_all(model: EngineModel, *requests: SimulatedRequest) -> tuple[SimulatedEngine, Run]:
    """Submit everything at once and run."""
    engine = SimulatedEngine(model)
    for each in requests:
        refusal = engine.submit(each, 0.0)
        assert not isinstance(refusal, Refusal), refusal
    return engine, run_until_idle(engine)
