"""What an endpoint's engine is, by its own word: asked where it can have changed, of engines that hand prompts over.

None of it changes while an engine runs, and an answer may cost its scheduler a look (SGLang). So it is asked

1. at first contact, and before an engine that was away is used again;
2. soon, where something speaks for another process at its place: its counters began anew, its page of metrics shows
   other settings, requests failed there, or it was drained;
3. else slowly, for what was started anew between two probes without any of these.

Counterpart: `engines/self_report.py`, which understands the replies; `routing/disaggregation/fits.py`, which judges.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic

import structlog

from headrace.domain.endpoint import EngineKind
from headrace.engines.contract import ProbeReply
from headrace.engines.kv_shape import KvShape
from headrace.engines.self_report import paths_of, read_self_report
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.questions import ask

log = structlog.get_logger("headrace.gateway")
BODY_BYTES = 1_048_576
"""SGLang's arguments have some twenty kilobytes; what is cut off cannot be read, and then nothing is known."""
NOT_THERE = (404, 405)
"""The engine has no such path; any other refusal says nothing of it."""
AGAIN_S = 30.0
"""Between two questions to an engine that has told, at most also to one that does not. Chosen: what is started anew
unseen takes part in hand-overs as what it was for so long, and falls back where it does not fit."""
DOUBT_S = 5.0
"""Between two questions for a sign of another process. Chosen: one that fails for other reasons is asked no faster."""
FIRST_RETRY_S = 1.0
"""After a question without an answer, then doubled up to `AGAIN_S`. Chosen."""


@dataclass(slots=True)
class Inquiry:
    """What one endpoint's engine was asked and has told. Concurrency: its prober's task alone."""

    clock: Callable[[], float] = monotonic
    _outages: int = -1
    _signs: tuple[int, int, bool] = (0, 0, False)
    """As of when that was asked."""
    _told: ProbeReply | None = None
    """The last reply that told; None: none since it was away."""
    _settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """As read together with it."""
    _asked_mono_s: float = 0.0
    _retry_s: float = 0.0

    async def learn(self, endpoint: Endpoint) -> None:
        """Ask where that is due, and keep what is told. Without a good answer in time an engine is what it said
        before, unless it was away."""
        if endpoint.outages != self._outages:
            self._outages, self._told, self._retry_s = endpoint.outages, None, 0.0
            endpoint.load.settings = self._settings = {}  # of the process that was there before
            await self._look(endpoint)
        elif self.clock() - self._asked_mono_s >= self._pause_s(endpoint):
            await self._look(endpoint)
        elif self._told is not None and endpoint.load.settings != self._settings:
            self._keep(endpoint, self._told)

    def _pause_s(self, endpoint: Endpoint) -> float:
        if self._told is None:
            return self._retry_s
        return max(DOUBT_S, self._retry_s) if _signs(endpoint) != self._signs else AGAIN_S

    async def _look(self, endpoint: Endpoint) -> None:
        signs, kind = _signs(endpoint), EngineKind(endpoint.plan.engine)
        reply = await _ask(endpoint, paths_of(kind))
        self._asked_mono_s = self.clock()
        if reply.status == 200 and read_self_report(kind, reply, {}).version is not None:
            self._told, self._signs, self._retry_s = reply, signs, 0.0
        else:
            self._retry_s = min(AGAIN_S, max(FIRST_RETRY_S, 2 * self._retry_s))
            if reply.status not in (200, *NOT_THERE) and self._told is not None:
                return
            self._told = None
        self._keep(endpoint, reply)

    def _keep(self, endpoint: Endpoint, reply: ProbeReply) -> None:
        self._settings, before = endpoint.load.settings, endpoint.told_shape
        found = read_self_report(EngineKind(endpoint.plan.engine), reply, self._settings)
        if found != before:
            endpoint.told_shape = found
            if before is not None and before.version is not None and before.version != found.version:
                _tell(endpoint, before, found)


def _signs(endpoint: Endpoint) -> tuple[int, int, bool]:
    """Another value: another process may be there."""
    return endpoint.load.restarts, endpoint.failures, endpoint.is_draining


async def _ask(endpoint: Endpoint, paths: tuple[str, ...]) -> ProbeReply:
    """The reply of the first path that is there, all within the time of one probe."""
    reply = ProbeReply(status=None)
    try:
        async with asyncio.timeout(endpoint.plan.probe_timeout_s):
            for path in paths:
                reply = await ask(endpoint, path, timeout_s=endpoint.plan.probe_timeout_s, body_bytes=BODY_BYTES)
                if reply.status not in NOT_THERE:
                    return reply
    except TimeoutError:
        return ProbeReply(status=None, is_timeout=True)
    return reply


def _tell(endpoint: Endpoint, before: KvShape, found: KvShape) -> None:
    log.info(
        "an engine runs another version",
        endpoint=endpoint.endpoint_id,
        before=before.version,
        version=found.version or "not measured",
    )
