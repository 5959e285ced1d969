"""Which batches run: begins them, ends those that are cancelled or whose window is over, and deletes what is old."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec
import structlog

from headrace.batch.core.turns import Waiting, choose_next
from headrace.batch.objects import BatchStatus, StoredBatch, entered
from headrace.batch.runner import BatchRunner
from headrace.batch.store import BatchStore
from headrace.domain.clock import Clock

log = structlog.get_logger("headrace.batch")
LOOK_S = 1.0
"""How soon the end of a window is noticed; everything else wakes the desk."""
RETRY_S = 5.0
"""A batch that could not go on (a full disk) is tried again after so long. Chosen."""
CLEANING_S = 600.0


@dataclass(slots=True, eq=False)
class _Work:
    runner: BatchRunner
    tenant: str
    task: asyncio.Task[None]


class BatchDesk:
    """Concurrency: event loop of the batch process."""

    def __init__(
        self, store: BatchStore, make_runner: Callable[[StoredBatch], BatchRunner], clock: Clock, retention_s: float
    ) -> None:
        self._store = store
        self._make_runner = make_runner
        self._clock = clock
        self._retention_s = retention_s
        self._work: dict[str, _Work] = {}
        self._not_before_mono_s: dict[str, float] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something has changed."""
        self._woken.set()

    def current(self, batch: StoredBatch) -> StoredBatch:
        """`batch` with what has been answered by now."""
        work = self._work.get(batch.batch_id)
        return batch if work is None else msgspec.structs.replace(batch, counts=work.runner.counts)

    def cancel(self, batch: StoredBatch) -> StoredBatch:
        """Take the batch to `cancelling`; lines in flight are dropped now."""
        if batch.status is not BatchStatus.CANCELLING:
            batch = entered(self.current(batch), BatchStatus.CANCELLING, self._clock.wall_s())
            self._store.put_batch(batch)
            work = self._work.get(batch.batch_id)
            if work is not None:
                work.task.cancel()
            self.wake()
        return batch

    async def run(self) -> None:
        """Work until cancelled; batches that run then go on with the next start."""
        clean_mono_s = 0.0
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._woken.clear()
                    self._look(group)
                    if monotonic() >= clean_mono_s:
                        clean_mono_s = monotonic() + CLEANING_S
                        self._clean()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._woken.wait()
        finally:
            self._work.clear()

    def _look(self, group: asyncio.TaskGroup) -> None:
        try:
            batches = {batch.batch_id: batch for batch in self._store.list_open()}
        except sqlite3.Error as error:
            log.error("batches cannot be read", error=str(error))
            return
        now_at, now_mono_s = self._clock.wall_s(), monotonic()
        waiting: list[Waiting] = []
        for batch in batches.values():
            if now_mono_s < self._not_before_mono_s.get(batch.batch_id, 0.0):
                continue
            work, ends_as = self._work.get(batch.batch_id), _due_end(batch, now_at)
            if work is None and ends_as is not None:
                runner = self._make_runner(batch)
                self._begin(group, batch, runner, runner.close_out(ends_as))
            elif work is None:
                waiting.append(Waiting(batch.batch_id, batch.tenant, batch.created_at))
            elif ends_as is BatchStatus.EXPIRED and work.task.get_name() == "run":
                work.task.cancel()
        while chosen := choose_next(waiting, [work.tenant for work in self._work.values()]):
            waiting.remove(chosen)
            batch = batches[chosen.batch_id]
            runner = self._make_runner(batch)
            self._begin(group, batch, runner, runner.run(), name="run")

    def _begin(
        self,
        group: asyncio.TaskGroup,
        batch: StoredBatch,
        runner: BatchRunner,
        story: Coroutine[Any, Any, None],
        name: str = "close out",
    ) -> None:
        async def carry() -> None:
            try:
                await story
            except Exception:  # the boundary of this task: whatever stopped it, it can be begun again
                self._not_before_mono_s[batch.batch_id] = monotonic() + RETRY_S
                log.exception("a batch cannot go on; it is tried again", batch=batch.batch_id, wait_s=RETRY_S)
            else:
                self._not_before_mono_s.pop(batch.batch_id, None)
            finally:
                self._work.pop(batch.batch_id, None)
                self.wake()

        task = group.create_task(carry(), name=name)
        self._work[batch.batch_id] = _Work(runner, batch.tenant, task)

    def _clean(self) -> None:
        now_at = self._clock.wall_s()
        try:
            deleted = self._store.delete_old(now_at, now_at - self._retention_s)
        except (sqlite3.Error, OSError) as error:
            log.error("old files cannot be deleted", error=str(error))
            return
        if deleted:
            log.info("files have expired", deleted=deleted)


def _due_end(batch: StoredBatch, now_at: float) -> BatchStatus | None:
    """How a batch that is open must end now, whatever it still does."""
    if batch.status is BatchStatus.CANCELLING:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if now_at >= batch.expires_at else None
