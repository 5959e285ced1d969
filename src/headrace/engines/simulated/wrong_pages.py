"""Metrics that lie: what the faults make of an engine's page of metrics."""

import time
from collections.abc import Callable

from headrace.engines.simulated.faults import FaultBook, FaultKind
from headrace.engines.simulated.http import Reply

RENAMED = b"renamed_"
"""Before every name of a page with the fault `metrics-renamed`."""


class WrongPages:
    """Serves one page, as the faults that are set want it."""

    def __init__(self, faults: FaultBook, missing: Reply) -> None:
        self._faults = faults
        self._missing = missing
        self._stale: Reply | None = None

    def serve(self, make: Callable[[], Reply]) -> Reply:
        """The page that `make` makes, or what is shown instead of it."""
        now_mono_s = time.monotonic()
        if self._faults.draw(FaultKind.METRICS_MISSING, now_mono_s):
            return self._missing
        if self._faults.draw(FaultKind.METRICS_STALE, now_mono_s):
            self._stale = self._stale or make()
            return self._stale
        self._stale = None
        reply = make()
        if self._faults.draw(FaultKind.METRICS_NAN, now_mono_s):
            return _changed(reply, lambda line: line.rpartition(b" ")[0] + b" NaN")
        if self._faults.draw(FaultKind.METRICS_RENAMED, now_mono_s):
            return _changed(reply, lambda line: RENAMED + line)
        return reply


def _changed(reply: Reply, change: Callable[[bytes], bytes]) -> Reply:
    lines = (line if not line or line.startswith(b"#") else change(line) for line in reply.body.split(b"\n"))
    return Reply(body=b"\n".join(lines), content_type=reply.content_type)
