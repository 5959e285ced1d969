"""Reads each engine's own load from its metrics, again and again: what it runs, what waits in it, how full it is.

Beside the probes, and never instead of our own counts: an engine whose page does not come is not out of order, its
numbers only grow old. Counterpart: `load.py`, which keeps them; `engines/load.py`, which understands the page.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from time import monotonic

import structlog

from headrace.engines.contract import ProbeReply
from headrace.engines.load import EngineLoad, read_load
from headrace.engines.metrics import MetricTable, MetricType, Purpose
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import FRESH_INTERVALS, MeasuredLoad
from headrace.gateway.endpoints.questions import ask
from headrace.gateway.tasks import keep

log = structlog.get_logger("headrace.gateway")
RECONCILE_S = 0.2
"""How soon a new endpoint is read first, and a removed one loses its task. As the prober."""
PAGE_BYTES = 4 * 1024 * 1024
"""Pages with many series and histograms have some hundred kilobytes; more is cut off."""
SILENT_S = 60.0
"""An engine that has no such page (404) is asked again after so long: it may have been restarted with one. Chosen."""


class LoadReader:
    """Keeps one reading task per endpoint whose engine has metrics. `on_reading` hears of each reading."""

    def __init__(self, directory: EndpointDirectory, on_reading: Callable[[Endpoint, float], None]) -> None:
        self._directory = directory
        self._on_reading = on_reading
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        try:
            while True:
                wanted = {endpoint for endpoint in self._directory if endpoint.driver.metrics is not None}
                for endpoint in wanted - self._tasks.keys():
                    self._tasks[endpoint] = keep(partial(self._read_for_ever, endpoint), f"load {endpoint.endpoint_id}")
                for endpoint in self._tasks.keys() - wanted:
                    self._tasks.pop(endpoint).cancel()
                await asyncio.sleep(RECONCILE_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()

    async def _read_for_ever(self, endpoint: Endpoint) -> None:
        before: EngineLoad | None = None
        while True:
            plan = endpoint.plan
            endpoint.load.fresh_for_s = FRESH_INTERVALS * (plan.probe_interval_s + plan.probe_timeout_s)
            pause_s = plan.probe_interval_s
            if endpoint.is_usable:
                reply, found = await self._read(endpoint)
                if found is not None:
                    _keep(endpoint, found, before, monotonic())
                    before = found
                elif reply.status in (404, 405):
                    pause_s = SILENT_S
            self._on_reading(endpoint, monotonic())
            await asyncio.sleep(pause_s)

    async def _read(self, endpoint: Endpoint) -> tuple[ProbeReply, EngineLoad | None]:
        table = endpoint.driver.metrics
        assert table is not None
        reply = await ask(endpoint, table.path, timeout_s=endpoint.plan.probe_timeout_s, body_bytes=PAGE_BYTES)
        if reply.status != 200:
            return reply, None
        return reply, read_load(reply.body.decode("utf-8", "replace"), table)


def _keep(endpoint: Endpoint, found: EngineLoad, before: EngineLoad | None, now_mono_s: float) -> None:
    load = endpoint.load
    load.settings = found.facts
    if before is not None and has_begun_anew(found, before, endpoint.driver.metrics):
        load.restarts += 1
    if found.running is None and found.waiting is None and found.kv_utilization_ratio is None:
        return
    load.note(
        MeasuredLoad(
            at_mono_s=now_mono_s,
            running=found.running,
            waiting=found.waiting,
            kv_utilization_ratio=found.kv_utilization_ratio,
            kv_capacity_tokens=found.values.get(Purpose.KV_CAPACITY),
            in_flight=endpoint.in_flight,
            ended=load.ended,
        )
    )
    load.miss_ratio = miss_ratio(found, before, load.miss_ratio)


def has_begun_anew(found: EngineLoad, before: EngineLoad, table: MetricTable | None) -> bool:
    """Whether the page is another process's than the one before: a count fell, or is there no more, or the settings
    are others."""
    if before.facts and found.facts and found.facts != before.facts:
        return True
    counted = () if table is None else table.metrics
    return any(
        found.values.get(metric.purpose, 0.0) < before.values.get(metric.purpose, 0.0)
        for metric in counted
        if metric.type is MetricType.COUNTER
    )


def miss_ratio(found: EngineLoad, before: EngineLoad | None, last: float) -> float:
    """Share of prompt tokens that were computed between two readings; the last one where none were looked up."""
    queries, hits = found.values.get(Purpose.PREFIX_QUERIES), found.values.get(Purpose.PREFIX_HITS)
    if before is None or queries is None or hits is None:
        return last
    looked_up = queries - before.values.get(Purpose.PREFIX_QUERIES, 0.0)
    found_tokens = hits - before.values.get(Purpose.PREFIX_HITS, 0.0)
    if looked_up <= 0 or found_tokens < 0:  # nothing came, or the engine was restarted
        return last
    return min(1.0, max(0.0, 1.0 - found_tokens / looked_up))
