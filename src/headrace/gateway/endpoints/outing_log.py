"""The gateway log's lines on endpoints: each that goes out of use, with the reason, and failures that take none out.

Bounded for each endpoint, since one that flaps would fill the log; what was left out is counted in the next line.
"""

from dataclasses import dataclass
from time import monotonic

import structlog

from headrace.domain.ids import EndpointId
from headrace.gateway.endpoints.endpoint import Endpoint

log = structlog.get_logger("headrace.gateway")
LINES = 6
"""Most lines on one endpoint in WINDOW_S. Chosen: an outage takes two, and its cause a few."""
WINDOW_S = 60.0
KNOWN_ENDPOINTS = 10_000
"""Endpoints come and go; at so many their bounds begin anew."""
REASON_CHARACTERS = 500
"""Engines put whole tracebacks into their messages."""


@dataclass(slots=True)
class _Bound:
    begun_mono_s: float
    lines: int = 0
    left_out: int = 0


class OutingLog:
    """Implements `Watcher`. Concurrency: event loop only."""

    def __init__(self) -> None:
        self._bounds: dict[EndpointId, _Bound] = {}

    def failed(self, endpoint: Endpoint, reason: str) -> None:
        """A request failed there, and it stays in use."""
        if self._may_tell(endpoint):
            log.warning("a request failed at an endpoint", **self._facts(endpoint, reason))

    def went_out(self, endpoint: Endpoint) -> None:
        if self._may_tell(endpoint):
            facts = self._facts(endpoint, endpoint.reason)
            log.warning("an endpoint is out of use", state=endpoint.state.value, **facts)

    def came_back(self, endpoint: Endpoint) -> None:
        if self._may_tell(endpoint):
            log.info("an endpoint is in use again", **self._facts(endpoint, endpoint.reason))

    def _may_tell(self, endpoint: Endpoint) -> bool:
        now_mono_s = monotonic()
        bound = self._bounds.get(endpoint.endpoint_id)
        if bound is None:
            if len(self._bounds) >= KNOWN_ENDPOINTS:
                self._bounds.clear()
            bound = self._bounds[endpoint.endpoint_id] = _Bound(now_mono_s)
        elif now_mono_s - bound.begun_mono_s > WINDOW_S:
            bound.begun_mono_s, bound.lines = now_mono_s, 0
        if bound.lines >= LINES:
            bound.left_out += 1
            return False
        bound.lines += 1
        return True

    def _facts(self, endpoint: Endpoint, reason: str) -> dict[str, object]:
        bound = self._bounds[endpoint.endpoint_id]
        left_out, bound.left_out = bound.left_out, 0
        facts: dict[str, object] = {
            "endpoint": endpoint.endpoint_id,
            "reason": reason[:REASON_CHARACTERS],
            "failures": endpoint.failures,
        }
        return {**facts, "lines_left_out": left_out} if left_out else facts
