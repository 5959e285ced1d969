"""The background thread: flushes in time, when woken, and at the end."""

import threading
from collections.abc import Callable

from headrace.ledger.flusher import Flusher


class CountingSink:
    """A sink that keeps what it was asked to do."""

    def __init__(self, *, works: bool = True) -> None:
        self.calls: list[str] = []
        self.flushed = threading.Event()
        self.wake: Callable[[], None] = lambda: None
        self._works = works

    def on_half_full(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def flush(self) -> bool:
        self.calls.append("flush")
        self.flushed.set()
        return self._works

    def close(self) -> None:
        self.calls.append("close")


def test_sinks_are_flushed_at_the_interval():
    """No record stays in memory for longer than the interval."""
    sink = CountingSink()
    flusher = Flusher((sink,), interval_s=0.01)
    flusher.start()
    assert sink.flushed.wait(30)
    flusher.close()


def test_a_half_full_sink_is_flushed_at_once():
    """A burst does not wait for the interval."""
    sink = CountingSink()
    flusher = Flusher((sink,), interval_s=3600)
    flusher.start()
    sink.wake()
    assert sink.flushed.wait(30)
    flusher.close()


def test_closing_flushes_and_closes_every_sink():
    """A clean stop loses nothing."""
    sinks = (CountingSink(), CountingSink())
    flusher = Flusher(sinks, interval_s=3600)
    flusher.start()
    flusher.close()
    assert [sink.calls[-1] for sink in sinks] == ["close", "close"]


def test_a_full_disk_does_not_make_the_thread_spin():
    """A sink that fails and wakes at every record is still tried only once an interval."""
    sink = CountingSink(works=False)
    flusher = Flusher((sink,), interval_s=3600)
    flusher.start()
    for _ in range(100):
        sink.wake()
    assert sink.flushed.wait(30)
    for _ in range(100):
        sink.wake()
    flusher.close()
    assert sink.calls.count("flush") <= 2
