"""Which batches run: begins them, ends those that are cancelled or whose window is over, and deletes what is old."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, cast

import msgspec
import structlog

from headrace.batch.core.lines import LineError
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
RETRY_MOST_S = 300.0
"""Each failure for a reason that nobody knows doubles the wait, up to this. Chosen."""
VALIDATIONS = 5
"""Times that a batch is validated before a reason that nobody knows ends it. Chosen."""
PASSING = (OSError, sqlite3.Error)
"""What stops a batch that can go on later as it is."""
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
        self._bugs: dict[str, int] = {}
        """How often a batch was stopped for a reason that nobody knows."""
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
            except Exception as error:  # noqa: BLE001 (the boundary of this task): whatever stopped it, it can be begun again
                self._stopped(batch.batch_id, runner, error)
            else:
                self._not_before_mono_s.pop(batch.batch_id, None)
                self._bugs.pop(batch.batch_id, None)
            finally:
                self._work.pop(batch.batch_id, None)
                self.wake()

        task = group.create_task(carry(), name=name)
        self._work[batch.batch_id] = _Work(runner, batch.tenant, task)

    def _stopped(self, batch_id: str, runner: BatchRunner, error: Exception) -> None:
        """Have it begun again later; an input that cannot even be validated would fail for ever."""
        wait_s = RETRY_S
        if not _is_passing(error):
            bugs = self._bugs[batch_id] = self._bugs.get(batch_id, 0) + 1
            wait_s = min(RETRY_MOST_S, RETRY_S * 2 ** min(bugs - 1, 10))
            if runner.is_validating and bugs >= VALIDATIONS and self._give_up(batch_id, runner, error):
                return
        self._not_before_mono_s[batch_id] = monotonic() + wait_s
        log.error("a batch cannot go on; it is tried again", batch=batch_id, wait_s=wait_s, exc_info=error)

    def _give_up(self, batch_id: str, runner: BatchRunner, error: Exception) -> bool:
        message = f"internal bug: the input could not be validated, {VALIDATIONS} times ({type(error).__name__})"
        try:
            runner.give_up(LineError(code="internal_bug", message=message))
        except PASSING:
            return False
        log.error("a batch cannot be validated; it has failed", batch=batch_id, exc_info=error)
        self._not_before_mono_s.pop(batch_id, None)
        del self._bugs[batch_id]
        return True

    def _clean(self) -> None:
        now_at = self._clock.wall_s()
        try:
            deleted = self._store.delete_old(now_at, now_at - self._retention_s)
        except (sqlite3.Error, OSError) as error:
            log.error("old files cannot be deleted", error=str(error))
            return
        if deleted:
            log.info("files have expired", deleted=deleted)


def _is_passing(error: BaseException) -> bool:
    """Whether nothing but PASSING stopped it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_passing, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, PASSING)


def _due_end(batch: StoredBatch, now_at: float) -> BatchStatus | None:
    """How a batch that is open must end now, whatever it still does."""
    if batch.status is BatchStatus.CANCELLING:
        return BatchStatus.CANCELLED
    return BatchStatus.EXPIRED if now_at >= batch.expires_at else None
