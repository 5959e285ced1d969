"""One coarse timer for everything that can run out, instead of a timer handle per request.

A handle per request costs more than the request's own bookkeeping; scanning ten thousand connections four times a
second costs about a millisecond each time.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

import structlog

log = structlog.get_logger("headrace.gateway")
SWEEP_INTERVAL_S = 0.25
"""Granularity of every time-out in the request path; time-outs are seconds, so a quarter of one is close enough."""


class Sweeper:
    """Calls each registered function with the loop's time, every SWEEP_INTERVAL_S."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sweeps: list[Callable[[float], None]] = []
        self._next: asyncio.TimerHandle | None = None

    def add(self, sweep: Callable[[float], None]) -> None:
        self._sweeps.append(sweep)

    def start(self) -> None:
        self._next = self._loop.call_later(SWEEP_INTERVAL_S, self._run)

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _run(self) -> None:
        self._next = self._loop.call_later(SWEEP_INTERVAL_S, self._run)
        now = monotonic()
        for sweep in self._sweeps:
            try:
                sweep(now)
            except Exception:  # the boundary of one of them: the clocks of the others go on
                log.exception("internal bug", sweep=repr(sweep))
