"""The gateway's processes as the supervisor keeps them: started on one socket, configured alike, replaced unseen.

No policy here but three rules: a plan is adopted by all workers or by none; a worker that dies is started again on the
same socket (callers wait in its backlog); a worker leaves only after its successor serves.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from structlog.typing import FilteringBoundLogger

from headrace.declaration.gateway_plan import GatewayPlan
from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.endpoint import EndpointState
from headrace.domain.miss_status import MissStatus
from headrace.domain.operator_error import OperatorError
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota import Spent
from headrace.domain.quota_status import LimitStatus
from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.split_status import SplitStatus
from headrace.domain.tenant import KeyRecord
from headrace.domain.worker import ExplainRoute, SetKeys, SetSpent, WorkerStatus
from headrace.fleet.deploy.predecessors import find_predecessors, forget_worker, note_worker
from headrace.fleet.deploy.process_watch import try_signal, wait_gone
from headrace.fleet.deploy.worker_process import WorkerLostError, WorkerProcess, rotate_output, start_worker
from headrace.settings import Settings

RESTART_FIRST_S, RESTART_MAX_S = 0.1, 10.0
"""Pause before a dead worker is started again; doubles while it dies young."""
YOUNG_S = 10.0
REFRESH_S = 1.0
"""A worker that missed a plan or keys gets them again this often."""
READY_S = 15.0
"""Bound for a new worker to see the endpoints that its predecessor sees as ready."""
PREPARE_S = 2.0
"""Longest wait for what a worker should know before it takes the place of another."""
EXIT_GRACE_S = 5.0
"""Beyond the drain bound, before a worker is killed."""


class GatewayStartError(OperatorError):
    """A gateway worker could not be started or refused its plan."""


@dataclass(slots=True, kw_only=True)
class WorkerSlot:
    """One worker that serves, with what it has been told."""

    worker: WorkerProcess
    started_mono_s: float
    plan_revision: int = -1
    keys_revision: int = -1
    spent_revision: int = -1


@dataclass(slots=True, kw_only=True)
class GatewayWorkers:
    """All workers of one instance.

    Concurrency: one event loop; `_change` serialises whatever starts workers or sends plans and keys.
    """

    settings: Settings
    listener: socket.socket
    supervisor_pid: int
    log: FilteringBoundLogger
    on_change: Callable[[], None]
    before_restart: Callable[[], Awaitable[None]] | None = None
    """Brings what a worker must be told up to date, before one takes the place of another that died."""
    before_limits: Callable[[TenancyPlan], Awaitable[None]] | None = None
    """Brings what workers know of spending up to date, before a plan with other limits is in force."""
    worker_count: int = 1
    module: Sequence[str] = ("-m", "headrace.gateway")
    plan: GatewayPlan | None = None
    restarts: int = 0
    slots: list[WorkerSlot] = field(default_factory=list[WorkerSlot])
    leaving: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    _keys: tuple[KeyRecord, ...] = ()
    _keys_revision: int = 0
    _spent: tuple[Spent, ...] = ()
    _spent_revision: int = 0
    _next_serial: int = 1
    _change: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_stopping: bool = False
    _were_ready: bool = False

    async def find_predecessors(self) -> int:
        """Take note of an earlier supervisor's workers; returns the newest plan revision that any of them serves by."""
        found = find_predecessors(self.settings)
        self._next_serial = 1 + max((each.serial for each in found), default=0)
        for each in found:
            self.leaving.append(WorkerProcess(each.serial, self.settings.worker_socket(each.serial), each.process))
        statuses = [status for _, status in await self.statuses() if status is not None]
        self._were_ready = any(status.is_ready and not status.is_draining for status in statuses)
        return max((status.plan_revision for status in statuses), default=0)

    async def start(self, plan: GatewayPlan, keys: Sequence[KeyRecord]) -> None:
        """Start the workers; those of an earlier supervisor are sent home by `run`, once these serve.

        Raises: GatewayStartError.
        """
        self.plan, self._keys, self._keys_revision = plan, tuple(keys), 1
        async with self._change:
            for _ in range(self.worker_count):
                self.slots.append(await self._start_one())
        if self._were_ready:
            await self._wait_ready_of(self.slots, READY_S)

    async def run(self, drain_s: Callable[[], float]) -> None:
        """Keep the workers alive until cancelled; predecessors are drained first."""
        async with asyncio.TaskGroup() as group:
            for old in list(self.leaving):
                group.create_task(self._see_off(old, drain_s(), is_replacement=True))
            for index in range(self.worker_count):
                group.create_task(self._keep_alive(index))
            while True:
                await asyncio.sleep(REFRESH_S)
                await self._refresh()
                if self.plan is not None:
                    rotate_output(self.settings, self.plan.log_bytes)

    async def configure(self, plan: GatewayPlan) -> str | None:
        """Make every worker adopt `plan`; the answer says why none has."""
        if self.before_limits is not None and self.plan is not None and plan.tenancy != self.plan.tenancy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.before_limits(plan.tenancy), PREPARE_S)
        async with self._change:
            before, self.plan = self.plan, plan
            raw = _raw(plan)
            refusal = ""
            for slot in self.slots:
                refusal = refusal or await self._try_configure(slot, plan.revision, raw)
            if not refusal:
                return None
            self.plan = before
            if before is not None:
                for slot in self.slots:
                    if slot.plan_revision == plan.revision:
                        await self._try_configure(slot, before.revision, _raw(before))
            return refusal

    async def set_keys(self, keys: Sequence[KeyRecord]) -> None:
        """Give every worker the keys that count from now on."""
        async with self._change:
            self._keys = tuple(keys)
            self._keys_revision += 1
            for slot in self.slots:
                await self._try_set_keys(slot)

    @property
    def keys(self) -> tuple[KeyRecord, ...]:
        """The keys that count now."""
        return self._keys

    async def set_spent(self, spent: tuple[Spent, ...]) -> None:
        """Tell every worker what was spent of budgets; one that is started later is told before it serves."""
        async with self._change:
            self._spent = spent
            self._spent_revision += 1
            for slot in self.slots:
                await self._try_set_spent(slot)

    async def _try_set_spent(self, slot: WorkerSlot) -> None:
        try:
            if self._spent:
                await slot.worker.set_spent(SetSpent(spent=self._spent))
        except WorkerLostError as error:
            self.log.warning("gateway worker missed what was spent", worker=slot.worker.serial, reason=str(error))
            return
        slot.spent_revision = self._spent_revision

    async def stop(self, drain_s: float) -> None:
        """Drain all workers at once; none is left afterwards."""
        self._is_stopping = True
        workers = [*(slot.worker for slot in self.slots), *self.leaving]
        self.slots.clear()
        await asyncio.gather(*(self._see_off(worker, drain_s) for worker in workers))

    def kill(self) -> None:
        """End at once whatever still drains."""
        for worker in (*(slot.worker for slot in self.slots), *self.leaving):
            if worker.process is not None:
                try_signal(worker.process, signal.SIGKILL)

    async def statuses(self) -> list[tuple[WorkerProcess, WorkerStatus | None]]:
        """Every worker with its own view, those on their way out included."""
        workers = [*(slot.worker for slot in self.slots), *self.leaving]
        answers = await asyncio.gather(*(worker.read_status() for worker in workers))
        return list(zip(workers, answers, strict=True))

    async def quotas(self) -> list[tuple[LimitStatus, ...]]:
        """What each worker knows of every limit; one that does not answer is left out."""
        answers = await asyncio.gather(*(slot.worker.read_quota() for slot in self.slots))
        return [answer for answer in answers if answer]

    async def queues(self) -> list[tuple[int, tuple[QueueStatus, ...]]]:
        """The queues of each worker, by its number."""
        answers = await asyncio.gather(*(slot.worker.read_queues() for slot in self.slots))
        return [(slot.worker.serial, answer) for slot, answer in zip(self.slots, answers, strict=True)]

    async def routing(self) -> list[RoutingStatus]:
        """What each worker knows of prompts and hits."""
        answers = await asyncio.gather(*(slot.worker.read_routing() for slot in self.slots))
        return [answer for answer in answers if answer is not None]

    async def misses(self) -> list[MissStatus]:
        """Why prompts missed the caches, as each worker knows."""
        answers = await asyncio.gather(*(slot.worker.read_misses() for slot in self.slots))
        return [answer for answer in answers if answer is not None]

    async def splits(self) -> list[SplitStatus]:
        """The traffic of each worker, with an eye on prefill and decode."""
        answers = await asyncio.gather(*(slot.worker.read_splits() for slot in self.slots))
        return [answer for answer in answers if answer is not None]

    async def explain_route(self, wish: ExplainRoute) -> RouteExplanation | str:
        """Where the first worker would send a request, or why not."""
        if not self.slots:
            return "no gateway worker runs"
        try:
            return await self.slots[0].worker.explain_route(wish)
        except WorkerLostError as error:
            return str(error)

    async def metrics(self) -> list[str]:
        """Prometheus text of every worker."""
        return list(await asyncio.gather(*(slot.worker.read_metrics() for slot in self.slots)))

    async def wait_usable(self, endpoint: str, bound_s: float) -> None:
        """Return once every worker sends requests to `endpoint`, or the bound is over."""
        loop = asyncio.get_running_loop()
        end_mono_s = loop.time() + bound_s
        while loop.time() < end_mono_s:
            seen = await self._statuses_of(self.slots)
            if seen and all(_is_usable(status, endpoint) for status in seen):
                return
            await asyncio.sleep(0.1)

    async def wait_idle(self, endpoint: str, bound_s: float) -> None:
        """Return once no worker has a request in flight on `endpoint`, or the bound is over."""
        loop = asyncio.get_running_loop()
        end_mono_s = loop.time() + bound_s
        while loop.time() < end_mono_s:
            seen = [status for _, status in await self.statuses() if status is not None]
            if not any(found.in_flight for status in seen for found in status.endpoints if found.endpoint == endpoint):
                return
            await asyncio.sleep(0.1)

    async def _keep_alive(self, index: int) -> None:
        """Start the worker at `index` again whenever it ends without being asked to."""
        pause_s = RESTART_FIRST_S
        while True:
            slot = self.slots[index] if index < len(self.slots) else None
            if slot is None or slot.worker.process is None:
                await asyncio.sleep(REFRESH_S)
                continue
            await wait_gone(slot.worker.process)
            if self._is_stopping:
                return
            if slot not in self.slots:
                continue  # Replaced: its successor is at this index.
            age_s = asyncio.get_running_loop().time() - slot.started_mono_s
            pause_s = RESTART_FIRST_S if age_s > YOUNG_S else min(RESTART_MAX_S, pause_s * 2)
            self.log.warning("gateway worker died", worker=slot.worker.serial, pid=slot.worker.pid, age_s=age_s)
            slot.worker.close()
            forget_worker(self.settings, slot.worker.serial)
            await self._restart(index, pause_s)

    async def _restart(self, index: int, pause_s: float) -> None:
        failed = 0
        while not self._is_stopping:
            await asyncio.sleep(pause_s)
            self.restarts += 1
            await self._prepare_restart()
            try:
                async with self._change:
                    fresh = await self._start_one()
                    fresh.worker.restarts = self.slots[index].worker.restarts + failed + 1
                    self.slots[index] = fresh
            except GatewayStartError as error:
                self.log.error("gateway worker does not start", reason=error.message)
                failed += 1
                pause_s = min(RESTART_MAX_S, pause_s * 2)
            else:
                self.on_change()
                return

    async def _prepare_restart(self) -> None:
        """What takes longer is told later: callers wait for this worker."""
        if self.before_restart is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.before_restart(), PREPARE_S)

    async def _start_one(self) -> WorkerSlot:
        """Start one worker and tell it everything. Called with `_change` held."""
        assert self.plan is not None
        serial, self._next_serial = self._next_serial, self._next_serial + 1
        worker = start_worker(self.settings, serial, self.listener.fileno(), self.supervisor_pid, module=self.module)
        slot = WorkerSlot(worker=worker, started_mono_s=asyncio.get_running_loop().time())
        try:
            if worker.process is not None:
                note_worker(self.settings, serial, worker.process)
            await worker.connect()
            await self._try_set_keys(slot)  # First, since a plan opens the door.
            await self._try_set_spent(slot)
            if slot.spent_revision != self._spent_revision:
                raise WorkerLostError(f"gateway worker {serial} could not be told what was spent")
            refusal = await self._try_configure(slot, self.plan.revision, _raw(self.plan))
            if refusal or slot.plan_revision != self.plan.revision or slot.keys_revision != self._keys_revision:
                raise WorkerLostError(f"gateway worker {serial} refused its plan: {refusal or 'no answer'}")
        except asyncio.CancelledError:
            if worker.process is not None:
                try_signal(worker.process, signal.SIGKILL)  # Nobody knows it yet, so nobody else would end it.
            forget_worker(self.settings, serial)
            raise
        except WorkerLostError as error:
            await worker.end_within(0)
            forget_worker(self.settings, serial)
            words = worker.output.last_line() if worker.output is not None else ""
            raise GatewayStartError(
                f"{error}{f'; its last words: {words}' if words else ''}",
                hint="`headrace logs --source gateway` shows all that it said.",
            ) from error
        self.log.info("gateway worker serves", worker=serial, pid=worker.pid, plan_revision=self.plan.revision)
        return slot

    async def _try_configure(self, slot: WorkerSlot, revision: int, raw: msgspec.Raw) -> str:
        """Send a plan; the answer is the worker's refusal. A lost worker refuses nothing: it is told later."""
        try:
            reply = await slot.worker.configure(raw)
        except WorkerLostError as error:
            self.log.warning("gateway worker missed a plan", worker=slot.worker.serial, reason=str(error))
            slot.plan_revision = -1
            return ""
        if reply.ok:
            slot.plan_revision = revision
            return ""
        return reply.message or "refused without a reason"

    async def _try_set_keys(self, slot: WorkerSlot) -> None:
        try:
            reply = await slot.worker.set_keys(SetKeys(keys=self._keys))
        except WorkerLostError as error:
            self.log.warning("gateway worker missed keys", worker=slot.worker.serial, reason=str(error))
            return
        if reply.ok:
            slot.keys_revision = self._keys_revision

    async def _refresh(self) -> None:
        """Tell workers again what they have missed."""
        async with self._change:
            for slot in self.slots:
                if self.plan is None or slot.worker.process is None or not slot.worker.process.is_alive:
                    continue
                is_behind = slot.plan_revision != self.plan.revision
                is_told = slot.keys_revision == self._keys_revision and slot.spent_revision == self._spent_revision
                if not is_behind and is_told:
                    continue
                try:
                    slot.worker.close()
                    await slot.worker.connect(bound_s=1.0)
                except WorkerLostError:
                    continue
                if is_behind:
                    await self._try_configure(slot, self.plan.revision, _raw(self.plan))
                await self._try_set_keys(slot)
                await self._try_set_spent(slot)

    async def _see_off(self, worker: WorkerProcess, drain_s: float, *, is_replacement: bool = False) -> None:
        """Let a worker finish what it has in flight, and see it gone."""
        if worker not in self.leaving:
            self.leaving.append(worker)
        await worker.drain(drain_s, is_replacement=is_replacement)
        is_clean = await worker.end_within(drain_s + EXIT_GRACE_S)
        if worker in self.leaving:
            self.leaving.remove(worker)
        forget_worker(self.settings, worker.serial)
        self.log.info("gateway worker left", worker=worker.serial, pid=worker.pid, had_to_be_killed=not is_clean)

    async def _statuses_of(self, slots: Sequence[WorkerSlot]) -> list[WorkerStatus]:
        found = await asyncio.gather(*(slot.worker.read_status() for slot in slots))
        return [status for status in found if status is not None]

    async def _wait_ready_of(self, slots: Sequence[WorkerSlot], bound_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end_mono_s = loop.time() + bound_s
        while True:
            if all(status.is_ready for status in await self._statuses_of(slots)):
                return True
            if loop.time() >= end_mono_s:
                return False
            await asyncio.sleep(0.05)


def _is_usable(status: WorkerStatus, endpoint: str) -> bool:
    usable = (EndpointState.READY, EndpointState.BUSY)
    return any(found.endpoint == endpoint and found.state in usable for found in status.endpoints)


def _raw(plan: GatewayPlan) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(plan))
