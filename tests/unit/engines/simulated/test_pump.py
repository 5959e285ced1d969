"""The engine model in real time: when steps begin, and what happens while they last."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from tests.harness.simulated_engine import simulated

from headrace.engines.simulated.pump import Pump, Write
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.outcome import Step
from headrace.simulation.request import SimulatedRequest


class Recorder:
    """A sink that notes when steps were due, and may be slow."""

    def __init__(self, busy_s: float = 0.0) -> None:
        self.due: list[float] = []
        self.tokens = 0
        self._busy_s = busy_s

    def prepare(self, step: Step, due_mono_s: float) -> Sequence[Write]:
        self.due.append(due_mono_s)
        self.tokens += sum(emission.tokens for emission in step.emissions)
        time.sleep(self._busy_s)
        return ()

    def delivered(self, step: Step, due_mono_s: float) -> None:
        assert time.monotonic() >= due_mono_s - 0.005, "a step is not delivered before it is due"


def asked(name: str, tokens: int) -> SimulatedRequest:
    return SimulatedRequest(request_id=name, prompt_tokens=range(10), output_tokens=tokens)


async def run_to_end(pump: Pump) -> None:
    async with asyncio.timeout(20):
        while pump.engine.load().running or pump.engine.load().waiting or not pump.steps:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("busy_s", [0.0, 0.004])
async def test_deadlines_do_not_drift(busy_s: float):
    """Steps are due exactly one step apart, even where delivering them is late each time."""
    config = simulated(step_s=0.003)
    sink = Recorder(busy_s)
    pump = Pump(SimulatedEngine(config.engine), sink, time_scale=1)
    assert pump.submit(asked("a", 20)) is None
    await run_to_end(pump)
    gaps = [later - earlier for earlier, later in zip(sink.due, sink.due[1:], strict=False)]
    assert gaps == pytest.approx([0.003] * 19)
    assert sink.tokens == 20


async def test_what_comes_at_once_is_batched():
    """Requests of one moment start in one step."""
    pump = Pump(SimulatedEngine(simulated().engine), Recorder(), time_scale=1)
    for name in "abcdefgh":
        assert pump.submit(asked(name, 5)) is None
    await run_to_end(pump)
    assert pump.steps == 5


async def test_time_can_go_faster():
    """With a scale of 10, a second of the engine takes a tenth."""
    sink = Recorder()
    pump = Pump(SimulatedEngine(simulated(step_s=0.05).engine), sink, time_scale=10)
    pump.submit(asked("a", 10))
    await run_to_end(pump)
    assert sink.due[-1] - sink.due[0] == pytest.approx(0.045)


async def test_a_cancelled_request_gets_nothing_more():
    """It leaves the engine with the next step, and the pump comes to rest."""
    sink = Recorder()
    pump = Pump(SimulatedEngine(simulated(step_s=0.002).engine), sink, time_scale=1)
    pump.submit(asked("a", 1000))
    async with asyncio.timeout(5):
        while sink.tokens < 3:
            await asyncio.sleep(0.001)
    pump.cancel("a")
    await run_to_end(pump)
    assert sink.tokens < 1000


async def test_a_bug_is_told_and_nothing_is_left_hanging():
    """An error in the middle of a step reaches `on_bug`; it does not vanish with every request waiting for ever."""

    class Broken(Recorder):
        def delivered(self, step: Step, due_mono_s: float) -> None:
            raise KeyError("broken")

    pump = Pump(SimulatedEngine(simulated().engine), Broken(), time_scale=1)
    told: list[Exception] = []
    pump.on_bug = told.append
    pump.submit(asked("a", 5))
    async with asyncio.timeout(5):
        while not told:
            await asyncio.sleep(0.001)
    assert isinstance(told[0], KeyError)
