"""The last hour of every model's counts, kept as a few snapshots: what came since the oldest is the window.

Pure: told the time. Counterpart: `worker_samples.LoadWatch`, which takes the snapshots.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.domain.split_status import LoadTotals

WINDOW_S = 3600.0
STEP_S = 300.0
"""Between two snapshots: the window is as much longer at most. Chosen."""
NO_TOTALS = LoadTotals()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All models at one moment, and the most that generated at once at one endpoint of each pool since the last one."""

    at_mono_s: float
    totals: Mapping[str, LoadTotals] = field(default_factory=dict[str, LoadTotals])
    peaks: Mapping[str, int] = field(default_factory=dict[str, int])


class LoadWindow:
    """Concurrency: one owner."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()
        self._peaks: dict[str, int] = {}

    def is_due(self, now_mono_s: float) -> bool:
        """A snapshot is to be kept."""
        return not self._kept or now_mono_s - self._kept[-1].at_mono_s >= STEP_S

    def keep(self, totals: Mapping[str, LoadTotals], now_mono_s: float) -> None:
        """Keep a snapshot, and forget those before the window. Where nothing changed, two share one object."""
        before: Mapping[str, LoadTotals] = self._kept[-1].totals if self._kept else {}
        shared: dict[str, LoadTotals] = {}
        for name, each in totals.items():
            known = before.get(name)
            shared[name] = known if known is not None and known == each else each
        self._kept.append(Snapshot(at_mono_s=now_mono_s, totals=shared, peaks=self._peaks))
        self._peaks = {}
        while len(self._kept) > 1 and now_mono_s - self._kept[1].at_mono_s >= WINDOW_S:
            self._kept.popleft()

    def note_running(self, pool: str, running: int) -> None:
        """So many generate at one endpoint of `pool` now."""
        if running > self._peaks.get(pool, 0):
            self._peaks[pool] = running

    def window_s(self, now_mono_s: float) -> float:
        """How long the window is now; 0 where it has not begun."""
        return now_mono_s - self._kept[0].at_mono_s if self._kept else 0.0

    def since(self, model: str, totals: LoadTotals) -> LoadTotals:
        """What came of a model in the window, whose totals are these now."""
        return totals.less(self._kept[0].totals.get(model, NO_TOTALS)) if self._kept else totals

    def peak(self, pool: str) -> int | None:
        """The most that generated at once at one endpoint of `pool` in the window; None: nothing was seen to."""
        seen = [one.peaks.get(pool, 0) for place, one in enumerate(self._kept) if place]
        return max([self._peaks.get(pool, 0), *seen]) or None
