"""Progress reports: phases, bytes, rate, and the way out."""

import pytest

from headrace.fleet.deploy.models.failure import FetchCancelledError
from headrace.fleet.deploy.models.progress import FetchPhase, FetchProgress, Meter


class StepClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_mono_s = 0.0

    def mono_s(self) -> float:
        return self.now_mono_s

    def wall_at(self):
        raise NotImplementedError


def test_the_rate_is_measured_over_the_last_seconds():
    """A fetch that slows down shows its new rate, not the mean since it began."""
    clock = StepClock()
    seen: list[FetchProgress] = []
    meter = Meter(seen.append, clock=clock)
    meter.enter(FetchPhase.DOWNLOADING, "x", total_bytes=100_000)
    assert seen[-1].rate_bytes_per_s is None
    for _ in range(10):
        clock.now_mono_s += 1
        meter.add(5000)
    assert seen[-1].rate_bytes_per_s == 5000
    for _ in range(10):
        clock.now_mono_s += 1
        meter.add(100)
    assert seen[-1].rate_bytes_per_s == 100
    assert (seen[-1].done_bytes, seen[-1].total_bytes) == (51_000, 100_000)


def test_reports_are_not_more_frequent_than_anyone_reads():
    """Thousands of pieces in one moment make one report."""
    clock = StepClock()
    seen: list[FetchProgress] = []
    meter = Meter(seen.append, clock=clock)
    meter.enter(FetchPhase.DOWNLOADING, "x")
    for _ in range(1000):
        meter.add(1)
    assert len(seen) == 1
    clock.now_mono_s += 1
    meter.add(1)
    assert seen[-1].done_bytes == 1001


def test_a_cancelled_meter_stops_the_fetch_at_its_next_step():
    """Every step that the fetch makes notices the cancel."""
    meter = Meter(lambda _: None)
    meter.enter(FetchPhase.DOWNLOADING, "x")
    meter.cancel()
    for step in (meter.check, lambda: meter.add(1), lambda: meter.pause(60), lambda: meter.enter(FetchPhase.DONE, "x")):
        with pytest.raises(FetchCancelledError):
            step()
