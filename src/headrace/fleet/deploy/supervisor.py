"""The supervisor: keeps replicas and gateway workers as declared, tells the gateway what exists, reloads, stops.

Composed in `wiring`; reached through the control API and signals. The story of one life: `run`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from structlog.typing import FilteringBoundLogger

from headrace.declaration.diff import diff
from headrace.declaration.gateway_plan import GatewayPlan, compile_gateway_plan
from headrace.declaration.load import Loaded
from headrace.declaration.model import Declaration
from headrace.domain.endpoint import ReplicaPhase
from headrace.domain.operator_error import OperatorError
from headrace.domain.tenant import KeyRecord
from headrace.fleet.deploy.core.reconcile import Steps
from headrace.fleet.deploy.gateway_workers import GatewayWorkers
from headrace.fleet.deploy.replica_fleet import ReplicaFleet
from headrace.fleet.deploy.replica_plan import EngineShape
from headrace.tenancy.overlay import NOTHING, TenancyOverlay, merge, shadowed

KEYS_POLL_S = 0.5
"""A key that another process revoked is refused everywhere within a second."""
ADOPTION_S = 15.0
"""Bound for adopted engines to be found ready before fresh gateway workers take over from their predecessors."""


class RunEnd(StrEnum):
    """Why `run` has returned."""

    STOPPED = "stopped"
    UPGRADE = "upgrade"
    """Engines and gateway workers still run: the same process is to execute the newly installed program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSteps:
    """Replicas of one pool, as EndpointIds: those that end do so once those that start are ready."""

    pool: str
    starts: tuple[str, ...]
    ends: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What a reload changed, or would change, or why it changed nothing."""

    is_ok: bool
    changes: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    pools: tuple[PoolSteps, ...] = ()
    """Where replicas are started or ended."""


@dataclass(slots=True, kw_only=True)
class Supervisor:
    """One instance's supervisor.

    Concurrency: one event loop; `_change` serialises plans and reloads.
    """

    loaded: Loaded
    fleet: ReplicaFleet
    gateway: GatewayWorkers
    load: Callable[[], Loaded]
    """Read the declaration again. Raises: OperatorError."""
    read_keys: Callable[[], Awaitable[Sequence[KeyRecord]]]
    """Every key that may be used now, as far as can be known. Raises: OperatorError at the first call only."""
    read_overlay: Callable[[], Awaitable[TenancyOverlay]]
    """The organisations, tenants and suspensions of the control API, as far as can be known."""
    on_adopted: Callable[[Loaded], None]
    """Called when a declaration has come into force."""
    log: FilteringBoundLogger
    revision: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _upgrade: asyncio.Event = field(default_factory=asyncio.Event)
    _change: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reading_callers: asyncio.Lock = field(default_factory=asyncio.Lock)
    _keys: tuple[KeyRecord, ...] | None = None
    _overlay: TenancyOverlay = NOTHING
    _merged: tuple[Loaded, Declaration] | None = None
    _failure: OperatorError | None = None

    @property
    def declaration(self) -> Declaration:
        """What is in force: the file, and what the control API has added to it."""
        if self._merged is None or self._merged[0] is not self.loaded:
            self._merged = (self.loaded, merge(self.loaded.declaration, self._overlay))
        return self._merged[1]

    def note_change(self) -> None:
        """A replica changed its phase: the gateway's endpoints may have changed."""
        self._changed.set()

    def request_stop(self) -> None:
        """Stop everything; asked again, hurry."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    async def run(self) -> RunEnd:
        """Boot, serve, and stop when asked to.

        Raises: OperatorError where the gateway does not start; nothing is left running then.
        """
        running = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            fleet = group.create_task(self.fleet.run(running))
            await running.wait()
            life = group.create_task(self._live())
            ends = [group.create_task(event.wait()) for event in (self._stop, self._upgrade)]
            await asyncio.wait([life, *ends], return_when=asyncio.FIRST_COMPLETED)
            is_upgrade = self._upgrade.is_set() and not self._stop.is_set() and not life.done()
            for task in (life, *ends):
                task.cancel()
            await asyncio.wait([life])
            if not is_upgrade:
                await self._shut_down(group)
            fleet.cancel()
        if self._failure is not None:
            raise self._failure
        return RunEnd.UPGRADE if is_upgrade else RunEnd.STOPPED

    async def wait_stopping(self) -> None:
        """Return once a stop was asked for."""
        await self._stop.wait()

    async def wait_idle(self, endpoint: str, bound_s: float) -> None:
        """Return once the gateway sends nothing more to a draining endpoint and has nothing in flight there."""
        await self.publish()
        await self.gateway.wait_idle(endpoint, bound_s)

    async def wait_usable(self, endpoint: str, bound_s: float) -> None:
        """Return once the gateway sends requests to a fresh endpoint."""
        await self.publish()
        await self.gateway.wait_usable(endpoint, bound_s)

    async def publish(self) -> None:
        """Give the workers the endpoints that exist now, if they have others."""
        async with self._change:
            plan = self._compile(self.declaration)
            if self.gateway.plan is None or _is_same(plan, self.gateway.plan):
                return
            self.revision = plan.revision
            refusal = await self.gateway.configure(plan)
            if refusal:
                self.log.error("gateway refused the endpoints", reason=refusal)

    async def refresh_keys(self) -> None:
        """Read the keys, and give them to the workers if they changed."""
        keys = tuple(await self.read_keys())
        if keys != self._keys:
            self._keys = keys
            await self.gateway.set_keys(keys)

    async def refresh_callers(self) -> None:
        """Read keys, tenants and suspensions, and give them to the workers if they changed.

        One after the other: what was read earlier must not overwrite what somebody else has read later.
        """
        async with self._reading_callers:
            await self.refresh_keys()
            overlay = await self.read_overlay()
            if overlay == self._overlay:
                return
            async with self._change:
                self._overlay, self._merged = overlay, None
                plan = self._compile(self.declaration)
                self.revision = plan.revision
                refusal = await self.gateway.configure(plan)
        if refusal:
            self.log.error("gateway refused changed tenants", reason=refusal)

    async def reload(self, *, is_dry_run: bool) -> ReloadOutcome:
        """Adopt the declaration's present text whole, or change nothing.

        The gateway's workers adopt the rules first; a refusal by one of them puts the old rules back everywhere. Then
        replicas follow: changed ones are started beside the old ones, which drain when the new ones are ready.
        """
        async with self._change:
            try:
                loaded = await asyncio.to_thread(self.load)
                changes = diff(self.loaded.declaration, loaded.declaration)
                pools = _pool_steps(self.fleet.plan(loaded.declaration))
            except OperatorError as error:
                return ReloadOutcome(is_ok=False, errors=(str(error),))
            texts = tuple(str(change) for change in changes)
            restarts = tuple(change.path for change in changes if change.needs_restart)
            if restarts:
                error_text = (
                    f"{', '.join(restarts)}: only `headrace down` and `headrace up` can change this; nothing done"
                )
                return ReloadOutcome(is_ok=False, changes=texts, needs_restart=restarts, errors=(error_text,))
            if is_dry_run or not changes:
                return ReloadOutcome(is_ok=True, changes=texts, pools=pools if changes else ())
            plan = self._compile(merge(loaded.declaration, self._overlay))
            self.revision = plan.revision
            refusal = await self.gateway.configure(plan)
            if refusal:
                return ReloadOutcome(is_ok=False, changes=texts, errors=(f"the gateway refused it: {refusal}",))
            self.loaded = loaded
            self._warn_of_shadowed()
            self.on_adopted(loaded)
            self.fleet.adopt_declaration(loaded.declaration)
            self.log.info("declaration reloaded", changes=len(texts), plan_revision=self.revision)
        self._changed.set()
        return ReloadOutcome(is_ok=True, changes=texts, pools=pools)

    def request_upgrade(self) -> None:
        """Leave `run` with everything still running, for the newly installed program to take over."""
        self._upgrade.set()

    async def _live(self) -> None:
        """Start everything and keep it going; a failure that an operator can mend ends it."""
        try:
            await self._boot()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish_changes())
                group.create_task(self.gateway.run(lambda: self.declaration.gateway.drain_s))
                group.create_task(self._poll_keys())
        except OperatorError as error:
            self._failure = error

    async def _boot(self) -> None:
        self._keys = tuple(await self.read_keys())
        self._overlay, self._merged = await self.read_overlay(), None
        self._warn_of_shadowed()
        self.revision = await self.gateway.find_predecessors()
        self.fleet.adopt_declaration(self.declaration)
        if self.gateway.leaving:
            self.log.info("gateway workers of an earlier supervisor found", count=len(self.gateway.leaving))
            await self._await_adopted()
        plan = self._compile(self.declaration)
        self.revision = plan.revision
        await self.gateway.start(plan, self._keys)
        self._changed.set()

    async def _await_adopted(self) -> None:
        """Wait until what is adopted has answered: a fresh worker must not refuse what its predecessor would serve."""
        runners = list(self.fleet.runners.values())
        settled = (ReplicaPhase.READY, ReplicaPhase.BACKING_OFF, ReplicaPhase.CRASH_LOOP, ReplicaPhase.STOPPED)
        try:
            async with asyncio.timeout(ADOPTION_S):
                await asyncio.gather(*(runner.wait_for(*settled) for runner in runners))
        except TimeoutError:
            self.log.warning("adopted engines are not all ready; going on")

    async def _publish_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.publish()
            except Exception:  # the boundary of this task: a bug here must not end engines that serve
                self.log.exception("endpoints could not be published")

    async def _poll_keys(self) -> None:
        while True:
            await asyncio.sleep(KEYS_POLL_S)
            try:
                await self.refresh_callers()
            except Exception:  # the boundary of this task: a bug here must not end engines that serve
                self.log.exception("keys and tenants could not be refreshed")

    async def _shut_down(self, group: asyncio.TaskGroup) -> None:
        """Gateway first, so that no request meets an engine that is going; then engines. Nothing is left."""
        hurrying = group.create_task(self._hurry_up())
        self.log.info("stopping", drain_s=self.declaration.gateway.drain_s)
        await self.gateway.stop(self.declaration.gateway.drain_s)
        await self.fleet.stop(is_hurried=self._hurry.is_set())
        hurrying.cancel()
        self.log.info("stopped")

    async def _hurry_up(self) -> None:
        await self._hurry.wait()
        self.log.info("hurrying")
        self.gateway.kill()
        await self.fleet.stop(is_hurried=True)

    def _warn_of_shadowed(self) -> None:
        for entry in shadowed(self.loaded.declaration, self._overlay.entries):
            said = "file and control API both have it; the file's counts"
            self.log.warning(said, kind=entry.kind.value, name=entry.name)

    def _compile(self, declaration: Declaration) -> GatewayPlan:
        return compile_gateway_plan(declaration, self.fleet.endpoints(declaration), revision=self.revision + 1)


def _pool_steps(steps: Iterable[Steps[EngineShape]]) -> tuple[PoolSteps, ...]:
    return tuple(
        PoolSteps(
            pool=step.pool,
            starts=tuple(f"{step.pool}/{started.number}" for started in step.start),
            ends=tuple(f"{step.pool}/{number}" for number in step.end),
        )
        for step in steps
        if step.start or step.end
    )


def _is_same(one: GatewayPlan, other: GatewayPlan) -> bool:
    return one.pools == other.pools
