"""Progress reports: phases, bytes, rate, and the way out."""

import pytest

from headrace.fleet.deploy.models.failure import FetchCancelledError, ModelFetchError
from headrace.fleet.deploy.models.progress import FetchPhase, FetchProgress, Meter, describe


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


def test_the_time_for_the_whole_fetch_ends_it_however_steadily_bytes_arrive():
    """A server that sends a byte now and then cannot hold a pod for ever."""
    clock = StepClock()
    meter = Meter(lambda _: None, clock=clock, total_timeout_s=100)
    meter.enter(FetchPhase.DOWNLOADING, "model.gguf")
    clock.now_mono_s = 99
    meter.add(1)
    clock.now_mono_s = 100
    for step in (lambda: meter.add(1), lambda: meter.pause(60)):
        with pytest.raises(ModelFetchError, match=r"may take 100 s, which are over while downloading model.gguf"):
            step()


def progress(what: str, **more: object) -> FetchProgress:
    fields = {"done_bytes": 41_000_000, "total_bytes": 100_000_000, "rate_bytes_per_s": 12e6, **more}
    return FetchProgress(phase=FetchPhase.DOWNLOADING, what=what, **fields)  # pyright: ignore[reportArgumentType]


def test_a_fetch_is_told_in_one_line() -> None:
    """What, how much of how much, how fast."""
    assert describe(progress("model.gguf")) == "downloading model.gguf: 41% of 100.0 MB, 12.0 MB/s"


def test_a_checksum_is_shown_short() -> None:
    """A file that is known by its checksum alone does not fill the line with it."""
    assert describe(progress("ab" * 32)).startswith("downloading abababababab: 41%")
