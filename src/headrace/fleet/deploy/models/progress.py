"""What a fetch tells whoever waits for it: phase, bytes, rate."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headrace.domain.clock import Clock, SystemClock
from headrace.fleet.deploy.models.failure import FetchCancelledError

REPORT_INTERVAL_S = 0.1
"""At most so often a running phase is reported; phase changes always are."""

RATE_WINDOW_S = 5.0
"""The rate is the mean over so long."""


class FetchPhase(StrEnum):
    """What a fetch is doing."""

    RESOLVING = "resolving"
    WAITING = "waiting"
    """Another process fetches the same file."""
    DOWNLOADING = "downloading"
    EXTRACTING = "extracting"
    VERIFYING = "verifying"
    CONVERTING = "converting"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchProgress:
    """One report."""

    phase: FetchPhase
    what: str
    """The file being worked on."""
    done_bytes: int = 0
    total_bytes: int | None = None
    """None where the length is not known."""
    rate_bytes_per_s: float | None = None
    """None until measured."""
    note: str = ""
    """Such as "retry 2 of 5: connection reset"."""


ReportProgress = Callable[[FetchProgress], None]


class Meter:
    """Counts the bytes of one phase after the other and reports them; also where a fetch notices that it must stop.

    Concurrency: used by the one thread that fetches; `cancel` may be called from any.
    """

    def __init__(self, report: ReportProgress, *, clock: Clock | None = None) -> None:
        self._report = report
        self._clock = clock or SystemClock()
        self._cancelled = threading.Event()
        self._phase = FetchPhase.RESOLVING
        self._what = ""
        self._done_bytes = 0
        self._total_bytes: int | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._reported_mono_s = float("-inf")

    def __repr__(self) -> str:
        return f"Meter({self._phase.value} {self._what}: {self._done_bytes}/{self._total_bytes} bytes)"

    def cancel(self) -> None:
        self._cancelled.set()

    def check(self) -> None:
        """Raises: FetchCancelledError after `cancel`."""
        if self._cancelled.is_set():
            raise FetchCancelledError

    def pause(self, seconds: float) -> None:
        """Sleep, but wake and raise when cancelled."""
        self._cancelled.wait(seconds)
        self.check()

    def enter(
        self, phase: FetchPhase, what: str, *, done_bytes: int = 0, total_bytes: int | None = None, note: str = ""
    ) -> None:
        """Begin a phase."""
        self.check()
        self._phase, self._what, self._done_bytes, self._total_bytes = phase, what, done_bytes, total_bytes
        self._samples.clear()
        self._samples.append((self._clock.mono_s(), done_bytes))
        self._send(note)

    def add(self, count_bytes: int) -> None:
        """Note that `count_bytes` more are done."""
        self.check()
        self._done_bytes += count_bytes
        now_s = self._clock.mono_s()
        if now_s - self._reported_mono_s >= REPORT_INTERVAL_S:
            self._samples.append((now_s, self._done_bytes))
            while len(self._samples) > 2 and now_s - self._samples[0][0] > RATE_WINDOW_S:
                self._samples.popleft()
            self._send("")

    def _send(self, note: str) -> None:
        self._reported_mono_s = self._clock.mono_s()
        since_s, since_bytes = self._samples[0]
        elapsed_s = self._reported_mono_s - since_s
        rate = (self._done_bytes - since_bytes) / elapsed_s if elapsed_s > 0 else None
        self._report(
            FetchProgress(
                phase=self._phase,
                what=self._what,
                done_bytes=self._done_bytes,
                total_bytes=self._total_bytes,
                rate_bytes_per_s=rate,
                note=note,
            )
        )
