"""The shell around one replica's life (`core/replica.py`): turns its commands into processes, probes and timers."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import httpx
from structlog.typing import FilteringBoundLogger

from headrace.declaration.model import Model
from headrace.domain.clock import Clock
from headrace.domain.endpoint import EngineKind, ReplicaPhase
from headrace.domain.operator_error import OperatorError
from headrace.engines.contract import Driver, EngineUnavailableError, Launch
from headrace.fleet.deploy.core.replica import (
    AbandonFetch,
    AwaitIdle,
    Command,
    EndProcess,
    Event,
    FetchFailed,
    FetchModel,
    IdleReached,
    LifeRules,
    ModelArrived,
    ProbeAnswered,
    ProbeEngine,
    ProcessEnded,
    ProcessStarted,
    ReplicaLife,
    RestartRequested,
    StartFailed,
    StartProcess,
    StopRequested,
    WakeAt,
    WarmEngine,
    WarmupAnswered,
    WarmupFailed,
    WokeUp,
)
from headrace.fleet.deploy.engine_process import (
    WARDEN_GRACE_S,
    EngineProcess,
    WardenFailedError,
    WardenPlan,
    adopt_engine,
    end_stray,
    find_adoptable,
    launch_digest,
    start_engine,
)
from headrace.fleet.deploy.inquiry import probe_engine, warm_engine
from headrace.fleet.deploy.ports import choose_port, find_holder, is_port_free
from headrace.fleet.deploy.replica_plan import ReplicaBounds, ReplicaPlan
from headrace.fleet.deploy.replica_spec import (
    ENGINE_HOST,
    check_options,
    make_spec,
    require_program,
    write_launch_files,
)
from headrace.fleet.deploy.state_files import engine_log_path, engine_state_path
from headrace.settings import Settings

_TRYING = (ReplicaPhase.FETCHING, ReplicaPhase.LOADING, ReplicaPhase.WARMING)
HURRY_S = 1.0
"""Bound of a hurried end: SIGTERM first even then, so that an engine may free what it holds."""


class FetchFn(Protocol):
    """Make a model's files present; many replicas may ask for the same one.

    Raises: OperatorError.
    """

    def __call__(self, plan: ReplicaPlan, model: Model, report: Callable[[str], None]) -> Awaitable[Path]: ...


@dataclass(slots=True, kw_only=True)
class ReplicaServices:
    """What all replicas of an instance share."""

    settings: Settings
    policy: Literal["stop", "keep"]
    log_bytes: int
    log_files: int
    driver_for: Callable[[EngineKind], Driver]
    fetch: FetchFn
    wait_idle: Callable[[str, float], Awaitable[None]]
    """Return once the gateway has nothing in flight on an endpoint, or the bound is over."""
    wait_usable: Callable[[str, float], Awaitable[None]]
    """Return once the gateway sends requests to an endpoint, or the bound is over."""
    http: httpx.AsyncClient
    clock: Clock
    log: FilteringBoundLogger
    on_change: Callable[[], None]
    """Called after each change of a phase."""
    ports: set[int] = field(default_factory=set[int])
    """Ports given to replicas of this instance."""


class ReplicaRunner:
    """Runs one replica until it is told to stop.

    Concurrency: `run` is one task; the other methods are called on the same event loop.
    """

    def __init__(self, plan: ReplicaPlan, services: ReplicaServices) -> None:
        self.plan = plan
        self._services = services
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        rules = LifeRules(load_timeout_s=plan.bounds.load_timeout_s)
        now_mono_s = services.clock.mono_s()
        self.life = ReplicaLife(rules, now_mono_s, since_mono_s=now_mono_s)
        self.since_at = services.clock.wall_at().timestamp()
        self.port: int | None = None
        self.launch_description = ""
        self.process: EngineProcess | None = None
        self.fetch_text = ""
        self.is_stopping = False
        self._model_path = Path()
        self._draft_path: Path | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._inquiry: asyncio.Task[None] | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._is_starting = False
        self._end_wanted: EndProcess | None = None
        self._reached = asyncio.Condition()

    def __repr__(self) -> str:
        return f"ReplicaRunner({self.plan.endpoint} {self.life.phase.value}, port={self.port})"

    @property
    def url(self) -> str | None:
        return f"http://{ENGINE_HOST}:{self.port}" if self.port else None

    @property
    def reason(self) -> str:
        """Why it is in this phase, with the fetch's progress; while it is tried again, why the last try failed."""
        life = self.life
        text = self.fetch_text if life.phase is ReplicaPhase.FETCHING and self.fetch_text else life.reason
        return f"{text}; the last try failed: {life.failure}" if life.failure and life.phase in _TRYING else text

    def request_stop(self, *, is_hurried: bool = False) -> None:
        self.is_stopping = True
        self._events.put_nowait(StopRequested(is_hurried))

    def request_restart(self) -> None:
        self._events.put_nowait(RestartRequested())

    def adopt_bounds(self, bounds: ReplicaBounds) -> None:
        """Use other waits from now on; the engine is not touched."""
        self.plan = replace(self.plan, bounds=bounds)
        self.life.rules = replace(self.life.rules, load_timeout_s=bounds.load_timeout_s)

    async def wait_for(self, *phases: ReplicaPhase) -> ReplicaPhase:
        """Return when the replica is in one of `phases`."""
        async with self._reached:
            await self._reached.wait_for(lambda: self.life.phase in phases)
            return self.life.phase

    async def run(self) -> None:
        """Live: from the first fetch to STOPPED. Cancelled, it leaves the engine to its warden."""
        async with asyncio.TaskGroup() as group:
            self._carry_out(self.life.begin(), group)
            await self._publish()
            while self.life.phase is not ReplicaPhase.STOPPED:
                event = await self._events.get()
                before = self.life.phase
                jitter = random.uniform(-1, 1)  # noqa: S311 - spreads restarts
                commands = self.life.feed(event, self._services.clock.mono_s(), jitter)
                if isinstance(event, ProcessEnded):
                    self.process = None
                    self._cancel(self._inquiry)
                self._carry_out(commands, group)
                if self.life.phase is not before:
                    await self._publish()
            for task in (self._inquiry, self._fetching):
                self._cancel(task)
            if self._wake:
                self._wake.cancel()
        if self.port is not None:
            self._services.ports.discard(self.port)

    async def _publish(self) -> None:
        life = self.life
        self.since_at = self._services.clock.wall_at().timestamp()
        is_bad = life.phase in (ReplicaPhase.BACKING_OFF, ReplicaPhase.CRASH_LOOP)
        note = self._services.log.warning if is_bad else self._services.log.info
        lines = {"last_lines": list(life.last_lines)} if is_bad and life.last_lines else {}
        note(
            "replica phase",
            replica=self.plan.endpoint,
            phase=life.phase.value,
            reason=life.reason,
            pid=self.process.pid if self.process else None,
            restarts=life.restarts,
            **lines,
        )
        self._services.on_change()
        async with self._reached:
            self._reached.notify_all()

    def _carry_out(self, commands: list[Command], group: asyncio.TaskGroup) -> None:
        for command in commands:
            match command:
                case FetchModel():
                    self._fetching = group.create_task(self._fetch())
                case AbandonFetch():
                    self._cancel(self._fetching)
                case StartProcess():
                    self._is_starting = True
                    group.create_task(self._start(group))
                case ProbeEngine(after_s):
                    self._inquiry = group.create_task(self._probe(after_s))
                case WarmEngine(after_s):
                    self._inquiry = group.create_task(self._warm(after_s))
                case AwaitIdle():
                    group.create_task(self._await_idle())
                case WakeAt(mono_s):
                    self._wake_at(mono_s)
                case EndProcess():
                    self._end(command, group)

    def _wake_at(self, mono_s: float) -> None:
        if self._wake:
            self._wake.cancel()
        pause_s = max(0.0, mono_s - self._services.clock.mono_s())
        self._wake = asyncio.get_running_loop().call_later(pause_s + 0.001, self._events.put_nowait, WokeUp())

    async def _fetch(self) -> None:
        def report(text: str) -> None:
            self.fetch_text = text

        try:
            shape = self.plan.shape
            self._model_path = await self._services.fetch(self.plan, shape.model, report)
            if shape.draft is not None:
                self._draft_path = await self._services.fetch(self.plan, shape.draft, report)
        except OperatorError as error:
            self._events.put_nowait(FetchFailed(str(error)))
        else:
            self._events.put_nowait(ModelArrived())
        finally:
            self.fetch_text = ""

    async def _start(self, group: asyncio.TaskGroup) -> None:
        """Adopt or start the engine; whatever goes wrong becomes an event."""
        try:
            process, is_adopted = await self._adopt_or_start()
        except (EngineUnavailableError, WardenFailedError, OperatorError, OSError) as error:
            self._events.put_nowait(StartFailed(str(error)))
            return
        finally:
            self._is_starting = False
        self.process = process
        group.create_task(self._watch(process))
        self._events.put_nowait(ProcessStarted(is_adopted))
        if self._end_wanted is not None:
            self._end(self._end_wanted, group)

    async def _adopt_or_start(self) -> tuple[EngineProcess, bool]:
        settings = self._services.settings
        state_path = engine_state_path(settings, self.plan.stem)
        left = find_adoptable(state_path)
        if left is not None:
            launch = self._launch(left.port)
            if launch_digest(launch) == left.digest:
                self._take_port(left.port)
                return adopt_engine(left, self._warden_plan(state_path)), True
            self._services.log.info("engine of an earlier supervisor differs: ended", replica=self.plan.endpoint)
            await end_stray(left, self.plan.bounds.stop_s)
        self._take_port(self._choose_port(left.port if left else None))
        assert self.port is not None
        launch = self._launch(self.port)
        require_program(self.plan, launch)
        write_launch_files(launch)
        return await start_engine(launch, self._warden_plan(state_path)), False

    def _choose_port(self, left: int | None) -> int:
        """The first of the declared ports that none of ours has, or else the one it had, or else a free one.

        Raises: OperatorError where somebody else has the declared port.
        """
        others = self._services.ports - ({self.port} if self.port else set[int]())
        first = self.plan.shape.port
        if first is None:
            seed = str(self._services.settings.state_dir)
            return choose_port(ENGINE_HOST, others, seed=seed, preferred=self.port or left)
        port = next(port for port in count(first) if port not in others)
        if not is_port_free(ENGINE_HOST, port):
            holder = find_holder(port)
            held = f", held by {holder}" if holder else ""
            raise OperatorError(f"port {port} is taken{held}", hint=f"Change pools.{self.plan.pool}.port.")
        return port

    def _take_port(self, port: int) -> None:
        if self.port is not None:
            self._services.ports.discard(self.port)
        self.port = port
        self._services.ports.add(port)

    def _launch(self, port: int) -> Launch:
        driver, settings = self._services.driver_for(self.plan.shape.engine), self._services.settings
        spec = make_spec(self.plan, settings, port=port, model_path=self._model_path, draft_path=self._draft_path)
        check_options(driver, spec)
        launch = driver.launch(spec)
        self.launch_description = launch.description
        return launch

    def _warden_plan(self, state_path: Path) -> WardenPlan:
        services = self._services
        assert self.port is not None
        return WardenPlan(
            state_path=state_path,
            log_path=engine_log_path(services.settings, self.plan.stem),
            log_bytes=services.log_bytes,
            log_files=services.log_files,
            supervisor_file=services.settings.supervisor_file,
            policy=services.policy,
            stop_s=self.plan.bounds.stop_s,
            port=self.port,
        )

    async def _watch(self, process: EngineProcess) -> None:
        end = await process.wait_ended()
        self._events.put_nowait(ProcessEnded(end.reason, tuple(end.last_lines)))

    async def _probe(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        driver = self._services.driver_for(self.plan.shape.engine)
        verdict = await probe_engine(self._services.http, str(self.url), driver, self.plan.bounds.probe_timeout_s)
        self._events.put_nowait(ProbeAnswered(verdict))

    async def _warm(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        driver = self._services.driver_for(self.plan.shape.engine)
        failure = await warm_engine(self._services.http, str(self.url), driver, self.plan)
        self._events.put_nowait(WarmupFailed(failure) if failure else WarmupAnswered())

    async def _await_idle(self) -> None:
        await self._services.wait_idle(self.plan.endpoint, self.plan.bounds.stop_s)
        self._events.put_nowait(IdleReached())

    def _end(self, command: EndProcess, group: asyncio.TaskGroup) -> None:
        if self._is_starting:
            self._end_wanted = command
            return
        self._end_wanted = None
        process = self.process
        if process is None:
            self._events.put_nowait(ProcessEnded("was not running"))
            return
        process.drain()
        bound_s = HURRY_S if command.is_hurried else self.plan.bounds.stop_s + WARDEN_GRACE_S
        group.create_task(process.kill_after(bound_s))

    @staticmethod
    def _cancel(task: asyncio.Task[None] | None) -> None:
        if task is not None:
            task.cancel()
