"""One running instance, composed: lock, sockets, stores, supervisor, ledger, control API, signals. The story: `run`."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import httpx
from structlog.typing import FilteringBoundLogger

from headrace import __version__
from headrace.control_api.app import create_app
from headrace.control_api.server import ControlServer, bind_unix
from headrace.database.connect import Database, open_database
from headrace.database.url import sqlite_url
from headrace.declaration.batch_section import compile_batch_plan
from headrace.declaration.load import Loaded
from headrace.declaration.tenancy_plan import TenancyPlan, compile_tenancy_plan
from headrace.domain.clock import SystemClock
from headrace.domain.operator_error import OperatorError
from headrace.domain.tenant import KeyRecord
from headrace.engines.registry import driver_for
from headrace.fleet.deploy.coordinator import coordinating
from headrace.fleet.deploy.gateway_workers import GatewayWorkers
from headrace.fleet.deploy.models import ModelStore
from headrace.fleet.deploy.ports import bind_listener, split_address
from headrace.fleet.deploy.predecessors import find_predecessors, try_take_listener
from headrace.fleet.deploy.process_identity import ProcessIdentity, own_identity
from headrace.fleet.deploy.replica_fleet import ReplicaFleet
from headrace.fleet.deploy.replica_runner import ReplicaServices
from headrace.fleet.deploy.state_files import SupervisorFile, lock_state, prepare_folders, write_supervisor_file
from headrace.fleet.deploy.supervisor import RunEnd, Supervisor
from headrace.ledger.spending import SpendingReader
from headrace.settings import Settings
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.overlay import TenancyOverlay
from headrace.wiring.batch_process import BatchProcess
from headrace.wiring.caller_source import CallerSource
from headrace.wiring.declared import Source, ask_endpoint
from headrace.wiring.first_keys import make_first_keys
from headrace.wiring.handover import Handover, HeldSockets, adopt_socket, exec_successor, take_handover
from headrace.wiring.key_source import KeySource
from headrace.wiring.ledger_process import LedgerProcess
from headrace.wiring.model_fetch import ModelFetch
from headrace.wiring.operations import InstanceOperations
from headrace.wiring.spending_watch import SpendingWatch
from headrace.wiring.supervisor_log import open_supervisor_log

Watch = Callable[[InstanceOperations, Loaded], Awaitable[None]]
"""Runs beside the instance, such as the progress shown by `headrace up`; its end ends nothing."""

CHECK_S = 60.0
"""Bound for the installed program to say that it starts."""


def run_instance(source: Source, settings: Settings, *, watch: Watch | None = None) -> None:
    """Run until stopped; for an upgrade, become the installed program.

    Raises: OperatorError.
    """
    handover = take_handover(os.environ)
    source = ask_endpoint(source)
    prepare_folders(settings)
    lock_fd = lock_state(settings, handover.lock_fd if handover else None)
    instance = Instance(source, settings, lock_fd, handover)
    if asyncio.run(instance.run(watch)) is RunEnd.UPGRADE:
        exec_successor(source.arguments(), instance.held)


@dataclass(slots=True)
class Instance:
    """One supervisor process and all it is made of."""

    source: Source
    settings: Settings
    lock_fd: int
    handover: Handover | None
    held: HeldSockets = field(init=False)
    _clock: SystemClock = field(default_factory=SystemClock)
    _process: ProcessIdentity = field(default_factory=own_identity)
    _unannounced: Loaded | None = None
    """What is in force, while it could not be written down."""

    async def run(self, watch: Watch | None) -> RunEnd:
        """Compose everything, run it, and leave nothing behind (or, for an upgrade, everything)."""
        load = self.source.loader(dict(os.environ))
        loaded = await asyncio.to_thread(load)
        log = self._open_log(loaded)
        self._open_sockets(loaded)
        started_at = self._clock.wall_at()
        self._announce(loaded, started_at)
        database_url = loaded.declaration.ledger.database or sqlite_url(self.settings.database_path)
        database = open_database(database_url)
        keys = KeyStore(database, self._clock)
        source = KeySource(keys, database_url, self.settings, lambda: make_first_keys(keys, loaded, self.settings))
        await asyncio.to_thread(source.read)  # A database that cannot be used stops the start, not the running.
        callers = CallerSource(source, EntryStore(database, self._clock), database, self._clock, self.settings)
        await asyncio.to_thread(callers.note_declared, loaded)
        async with httpx.AsyncClient(trust_env=False) as http:
            supervisor = self._compose(loaded, load, callers, http, log, started_at)
            spending = self._watch_spending(supervisor, database)
            await spending.look()  # Before a worker serves: a budget that was spent stays spent.
            ledger = LedgerProcess(self.settings, database_url, loaded.declaration.ledger.retention_days)
            operations = InstanceOperations(
                settings=self.settings,
                supervisor=supervisor,
                ledger=ledger,
                clock=self._clock,
                process=self._process,
                started_at=started_at,
                inference_url=inference_url(loaded, self.held),
                control_url=control_url(self.held),
                check_program=check_program,
            )
            end = RunEnd.STOPPED
            try:
                async with coordinating(self.settings.leases_socket, self._clock, log):
                    end = await self._run_all(supervisor, ledger, operations, keys, database, watch, spending)
            finally:
                database.close()
                if end is RunEnd.STOPPED:
                    self.held.listener.close()
                    self.held.control.close()
                    self.settings.supervisor_file.unlink(missing_ok=True)
                    self.settings.control_socket.unlink(missing_ok=True)
        return end

    async def _run_all(
        self,
        supervisor: Supervisor,
        ledger: LedgerProcess,
        operations: InstanceOperations,
        keys: KeyStore,
        database: Database,
        watch: Watch | None,
        spending: SpendingWatch,
    ) -> RunEnd:
        apps = [create_app(operations, database, keys, self._clock, is_local=is_local) for is_local in (False, True)]
        # A copy, since the server closes what it serves, and a successor of this program may need the original.
        sockets = [self.held.control.dup(), bind_unix(self.settings.control_socket)]
        control = ControlServer(list(zip(apps, sockets, strict=True)))
        failure: OperatorError | None = None
        end = RunEnd.STOPPED
        declared = supervisor.declaration
        plan = compile_batch_plan(declared.batch, body_bytes=declared.gateway.limits.body_bytes)
        batches = BatchProcess(self.settings, plan)
        async with asyncio.TaskGroup() as group:
            self._listen_to_signals(group, supervisor, operations)
            serving = group.create_task(control.run())
            beside = [
                group.create_task(ledger.run()),
                group.create_task(spending.run()),
                group.create_task(batches.run()),
            ]
            if watch is not None:
                beside.append(group.create_task(_run_watch(watch, operations, supervisor.loaded)))
            try:
                end = await supervisor.run()
            except OperatorError as error:
                failure = error  # Raised below: a task group would wrap it.
            for task in beside:
                task.cancel()
            await batches.stop()
            await ledger.stop()
            control.stop()
            await serving
        if failure is not None:
            raise failure
        return end

    def _open_log(self, loaded: Loaded) -> FilteringBoundLogger:
        seen = loaded.declaration.observability
        log = open_supervisor_log(
            self.settings, level=seen.log_level, limit_bytes=seen.log_bytes, keep_files=seen.log_files
        )
        log.info(
            "supervisor starts",
            version=__version__,
            pid=self._process.pid,
            declaration=str(loaded.path or "built in"),
            is_upgrade=self.handover is not None,
        )
        return log

    def _open_sockets(self, loaded: Loaded) -> None:
        """Own both ports before anything is started, so that a taken one costs nothing."""
        gateway = loaded.declaration.gateway
        if self.handover is not None:
            listener, control = adopt_socket(self.handover.listener_fd), adopt_socket(self.handover.control_fd)
        else:
            predecessors = find_predecessors(self.settings)
            pids = [found.process.pid for found in predecessors]
            listener = try_take_listener(predecessors, split_address(gateway.listen)) or bind_listener(
                gateway.listen, key="gateway.listen", own_pids=pids
            )
            control = bind_listener(gateway.control, key="gateway.control")
        self.held = HeldSockets(lock_fd=self.lock_fd, listener=listener, control=control)

    def _announce(self, loaded: Loaded, started_at: datetime) -> None:
        """Say on disk who runs here: before any engine is adopted, since wardens read it to know whom to watch."""
        write_supervisor_file(
            self.settings,
            SupervisorFile(
                process=self._process,
                version=__version__,
                started_at=started_at.timestamp(),
                config_file=str(loaded.path) if loaded.path else None,
                on_supervisor_loss=loaded.declaration.on_supervisor_loss,
                inference_url=inference_url(loaded, self.held),
                control_url=control_url(self.held),
                declaration_digest=loaded.digest,
                arguments=tuple(self.source.arguments()),
            ),
        )

    def _try_announce(self, loaded: Loaded, started_at: datetime, log: FilteringBoundLogger) -> None:
        """Announce what is in force by now; a full disk changes nothing of that, and is tried again."""
        try:
            self._announce(loaded, started_at)
        except OSError as error:
            if self._unannounced is None:
                log.error("what is declared now cannot be written down; it is tried again", error=str(error))
            self._unannounced = loaded
        else:
            self._unannounced = None

    def _compose(
        self,
        loaded: Loaded,
        load: Callable[[], Loaded],
        callers: CallerSource,
        http: httpx.AsyncClient,
        log: FilteringBoundLogger,
        started_at: datetime,
    ) -> Supervisor:
        seen = loaded.declaration.observability

        async def read_keys() -> Sequence[KeyRecord]:
            return await asyncio.to_thread(callers.read_keys)

        async def read_overlay() -> TenancyOverlay:
            if self._unannounced is not None:
                self._try_announce(self._unannounced, started_at, log)
            return await asyncio.to_thread(callers.read_overlay)

        def adopted(current: Loaded) -> None:
            services.log_bytes = current.declaration.observability.log_bytes
            services.log_files = current.declaration.observability.log_files
            self._try_announce(current, started_at, log)
            callers.declared = current

        services = ReplicaServices(
            settings=self.settings,
            policy=loaded.declaration.on_supervisor_loss,
            log_bytes=seen.log_bytes,
            log_files=seen.log_files,
            driver_for=driver_for,
            fetch=ModelFetch(ModelStore(self.settings.cache_dir)),
            wait_idle=lambda endpoint, bound_s: supervisor.wait_idle(endpoint, bound_s),
            wait_usable=lambda endpoint, bound_s: supervisor.wait_usable(endpoint, bound_s),
            http=http,
            clock=self._clock,
            log=log,
            on_change=lambda: supervisor.note_change(),
        )
        gateway = GatewayWorkers(
            settings=self.settings,
            listener=self.held.listener,
            supervisor_pid=self._process.pid,
            log=log,
            on_change=lambda: supervisor.note_change(),
            worker_count=loaded.declaration.gateway.workers,
        )
        supervisor = Supervisor(
            loaded=loaded,
            fleet=ReplicaFleet(services),
            gateway=gateway,
            load=load,
            read_keys=read_keys,
            read_overlay=read_overlay,
            on_adopted=adopted,
            log=log,
        )
        supervisor.fleet.check(loaded.declaration)
        return supervisor

    def _watch_spending(self, supervisor: Supervisor, database: Database) -> SpendingWatch:
        gateway = supervisor.gateway

        def situation() -> tuple[TenancyPlan, tuple[KeyRecord, ...], int]:
            plan = gateway.plan
            tenancy = compile_tenancy_plan(supervisor.declaration) if plan is None else plan.tenancy
            return tenancy, gateway.keys, gateway.restarts

        watch = SpendingWatch(SpendingReader(database), self._clock, situation, gateway.set_spent)
        gateway.before_restart = gateway.before_limits = watch.look
        return watch

    def _listen_to_signals(
        self, group: asyncio.TaskGroup, supervisor: Supervisor, operations: InstanceOperations
    ) -> None:
        loop = asyncio.get_running_loop()

        async def reload() -> None:
            try:
                await operations.reload(is_dry_run=False, is_upgrade=False)
            except Exception:  # the boundary of this task: a bug here must not end engines that serve
                supervisor.log.exception("reload failed in a way it should not")

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.request_stop)
        loop.add_signal_handler(signal.SIGHUP, lambda: group.create_task(reload()))


async def _run_watch(watch: Watch, operations: InstanceOperations, loaded: Loaded) -> None:
    await watch(operations, loaded)


def inference_url(loaded: Loaded, held: HeldSockets) -> str:
    """Where callers connect, with the real port where the declaration says 0."""
    scheme = "https" if loaded.declaration.gateway.tls else "http"
    return f"{scheme}://{_reachable(held.listener.getsockname())}"


def control_url(held: HeldSockets) -> str:
    return f"http://{_reachable(held.control.getsockname())}"


def _reachable(address: tuple[str, int]) -> str:
    """Write a bound address so that it can be opened: the wildcard as this machine."""
    host, port = address[0], address[1]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what the operator declared, shown
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def check_program() -> str | None:
    """Ask the installed program whether it starts; the answer is its complaint."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace.wiring", "--check",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(CHECK_S):
            _, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"no answer within {CHECK_S:g} s"
    if process.returncode == 0:
        return None
    return complaint.decode(errors="replace").strip()[-500:] or f"exit status {process.returncode}"
