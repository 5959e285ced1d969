"""The engine model in real time: steps one after the other, their tokens sent when they are due.

Deadlines are absolute: a step begins when the one before was due, not when it was delivered, so that nothing drifts.
What a step sends is made ready while the step "computes", and a large batch is begun early by half of the time that its
writes take, so that its middle is on time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.engines.simulated.http import Connection
from headrace.engines.simulated.stats import Histogram
from headrace.simulation.engine import SimulatedEngine
from headrace.simulation.outcome import Refusal, Step
from headrace.simulation.request import SimulatedRequest

MAX_LAG_S = 2.0
"""A process that is later than this gives up catching up, and says so in `/sim/timing`."""

ERROR_BOUNDS = tuple(n / 10_000 for n in range(1, 1001))
"""Tenths of a millisecond, to a tenth of a second."""

MAX_LEAD_RATIO = 0.3
"""Of a step's duration, a batch is begun early by at most so much."""

SMOOTHING = 0.1
"""Weight of the newest batch in the learned time of one write."""

Write = tuple[Connection, bytes]


class StepSink(Protocol):
    """What becomes of a step's tokens."""

    def prepare(self, step: Step, due_mono_s: float) -> Sequence[Write]:
        """Make ready what is to be sent at `due_mono_s`."""
        ...

    def delivered(self, step: Step, due_mono_s: float) -> None:
        """Everything was sent: end what has ended."""
        ...


class Pump:
    """Runs one engine. All methods belong to the event loop's thread."""

    def __init__(self, engine: SimulatedEngine, sink: StepSink, *, time_scale: float) -> None:
        self.engine = engine
        self._sink = sink
        self._scale = time_scale
        self._origin_mono_s = time.monotonic()
        self._step: Step | None = None
        self._started_s = 0.0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._writes: Sequence[Write] = ()
        self._is_running = True
        self._is_nudged = False
        self.on_bug: Callable[[Exception], None] = _raise
        """Called when a step cannot be delivered: nothing would ever be again, so the process must not go on."""
        self.slowness: Callable[[], float] = lambda: 1.0
        """Factor on the duration of steps, asked at each."""
        self.timing_error = Histogram(ERROR_BOUNDS)
        """Seconds between when a token was due and when it was written to its socket, early or late."""
        self._write_s = 0.0
        """What one write takes, learned."""
        self.steps = 0
        self.lags = 0
        """How often it was later than MAX_LAG_S."""

    def now_s(self) -> float:
        """Simulated time now."""
        return (time.monotonic() - self._origin_mono_s) * self._scale

    def mono_s(self, simulated_s: float) -> float:
        """The real monotonic time of a simulated one."""
        return self._origin_mono_s + simulated_s / self._scale

    def submit(self, request: SimulatedRequest) -> Refusal | None:
        """Queue a request; it starts with the next step."""
        now_s = self._arrival_s()
        refusal = self.engine.submit(request, now_s)
        if refusal is None:
            self.nudge()
        return refusal

    def _arrival_s(self) -> float:
        """Now, but never outside the step that is under way: the engine's time only goes forward."""
        now_s = self.now_s()
        if self._step is None:
            return max(now_s, self._due_s)
        return min(max(now_s, self._started_s), self._due_s)

    def cancel(self, request_id: str) -> None:
        self.engine.cancel(request_id)

    def nudge(self) -> None:
        """There may be something to do: begin a step soon, so that what comes at once is batched."""
        is_free = self._step is None or self._step.is_wait
        if is_free and not self._is_nudged and self._is_running:
            self._is_nudged = True
            asyncio.get_running_loop().call_soon(self._guarded, self._begin_now)

    def stop(self) -> None:
        """Do no more steps."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()

    def _guarded(self, act: Callable[[], None]) -> None:
        """The boundary of a callback: where an error would otherwise vanish, and every request hang."""
        try:
            act()
        except Exception as error:  # noqa: BLE001
            self.on_bug(error)

    def _begin_now(self) -> None:
        """Begin a step, cutting a wait short: nothing was being computed."""
        self._is_nudged = False
        if self._step is not None and not self._step.is_wait:
            return
        if self._timer is not None:
            self._timer.cancel()
        start_s = self._arrival_s()
        self._step = None
        self._begin(start_s)

    def _begin(self, start_s: float) -> None:
        if not self._is_running:
            return
        step = self.engine.step(start_s)
        self._step = step
        self._started_s = start_s
        if step is None:
            self._due_s = max(self._due_s, start_s)
            return
        self.steps += 1
        self._due_s = start_s + step.duration_s * self.slowness()
        due_mono_s = self.mono_s(self._due_s)
        self._writes = self._sink.prepare(step, due_mono_s)
        lead_s = min(len(self._writes) * self._write_s / 2, MAX_LEAD_RATIO * step.duration_s / self._scale)
        delay_s = due_mono_s - lead_s - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._guarded, self._deliver)

    def _deliver(self) -> None:
        step, due_mono_s = self._step, self.mono_s(self._due_s)
        if step is None:
            return
        observe, mono_s = self.timing_error.observe, time.monotonic
        began_mono_s = mono_s()
        for connection, data in self._writes:
            connection.write(data)
            observe(abs(mono_s() - due_mono_s))
        if self._writes:
            each_s = (mono_s() - began_mono_s) / len(self._writes)
            self._write_s += SMOOTHING * (each_s - self._write_s)
        self._writes = ()
        self._sink.delivered(step, due_mono_s)
        self._step = None
        if mono_s() - due_mono_s > MAX_LAG_S:
            self.lags += 1
            self._begin(self.now_s())
        else:
            self._begin(self._due_s)


def _raise(error: Exception) -> None:
    raise error
