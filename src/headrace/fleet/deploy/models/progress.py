"""What a fetch tells whoever waits for it: phase, bytes, rate."""

import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from headrace.domain.clock import Clock, SystemClock
from headrace.fleet.deploy.models.failure import FetchCancelledError, ModelFetchError

REPORT_INTERVAL_S = 0.1
"""At most so often a running phase is reported; phase changes always are."""

RATE_WINDOW_S = 5.0
"""The rate is the mean over so long."""

CHECKSUM = re.compile(r"[0-9a-f]{64}")
"""Files of the cache are named by theirs; people need no more of it than tells two apart."""


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

    def __init__(
        self, report: ReportProgress, *, clock: Clock | None = None, total_timeout_s: float | None = None
    ) -> None:
        self._report = report
        self._clock = clock or SystemClock()
        self._total_timeout_s = total_timeout_s
        self._begun_mono_s = self._clock.mono_s()
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
        """Raises: FetchCancelledError after `cancel`, ModelFetchError when the time for the whole fetch is over."""
        if self._cancelled.is_set():
            raise FetchCancelledError
        if self.left_s == 0:
            raise ModelFetchError(
                f"the whole fetch may take {self._total_timeout_s:g} s, which are over while {self._phase.value} "
                f"{self._what}. What has arrived is kept and will be resumed"
            )

    @property
    def left_s(self) -> float | None:
        """What is left of the time for the whole fetch, 0 when it is over; None where it has no bound."""
        if self._total_timeout_s is None:
            return None
        return max(0.0, self._begun_mono_s + self._total_timeout_s - self._clock.mono_s())

    def pause(self, seconds: float) -> None:
        """Sleep, but wake and raise when cancelled, or when the time is over."""
        left_s = self.left_s
        self._cancelled.wait(seconds if left_s is None else min(seconds, left_s))
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


def describe(progress: FetchProgress) -> str:
    """Put a report into one line, such as "downloading model.gguf: 41 % of 98.4 MB, 12.0 MB/s"."""
    text = f"{progress.phase.value} {CHECKSUM.sub(lambda found: found[0][:12], progress.what)}".strip()
    if progress.phase in (FetchPhase.DOWNLOADING, FetchPhase.EXTRACTING, FetchPhase.VERIFYING, FetchPhase.CONVERTING):
        if progress.total_bytes:
            text += f": {progress.done_bytes / progress.total_bytes:.0%} of {progress.total_bytes / 1e6:.1f} MB"
        elif progress.done_bytes:
            text += f": {progress.done_bytes / 1e6:.1f} MB"
        if progress.rate_bytes_per_s:
            text += f", {progress.rate_bytes_per_s / 1e6:.1f} MB/s"
    return f"{text} ({progress.note})" if progress.note else text
