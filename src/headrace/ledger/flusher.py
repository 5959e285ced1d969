"""The one background thread of a gateway worker: writes journal and request log, so that the event loop never does."""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol


class Sink(Protocol):
    """What the flusher serves. Trouble with the disk stays in the sink's own counters; no OSError is raised."""

    def on_half_full(self, wake: Callable[[], None]) -> None: ...

    def flush(self) -> bool:
        """Write what is pending; False where the disk refused."""
        ...

    def close(self) -> None: ...


class Flusher:
    """Flushes its sinks every `interval_s`, and at once when one is half full.

    Concurrency: `start` and `close` from the owner's thread; the sinks' `append` from the event loop.
    """

    def __init__(self, sinks: Sequence[Sink], *, interval_s: float) -> None:
        self.interval_s = interval_s
        """May be changed while running."""
        self._sinks = tuple(sinks)
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-flusher", daemon=True)
        for sink in self._sinks:
            sink.on_half_full(self._wake.set)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def close(self) -> None:
        """Write everything and end. Blocks as long as the disk takes for it."""
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for sink in self._sinks:
            sink.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(self.interval_s)
            self._wake.clear()
            results = [sink.flush() for sink in self._sinks]
            if not all(results):
                self._closing.wait(self.interval_s)  # a full buffer wakes at once: a full disk must not make us spin
