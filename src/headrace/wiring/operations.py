"""`control_api.operations.Operations`, answered by the running supervisor."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime

import structlog

from headrace import __version__
from headrace.batch.look import BatchStoreUnreadableError, BatchView, FileView, read_batches, read_files
from headrace.control_api.operations import InstanceStatus, LedgerSummary, PoolChange, ReloadReport, RestartReport
from headrace.declaration.load import Loaded
from headrace.declaration.model import Declaration
from headrace.declaration.nearest import did_you_mean
from headrace.domain.clock import Clock
from headrace.domain.endpoint import ReplicaPhase
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.miss_status import MissStatus, add_up_misses
from headrace.domain.queue_status import QueueStatus, merge_queues
from headrace.domain.quota_status import LimitStatus, merge_limits
from headrace.domain.routing_status import RouteExplanation, RoutingStatus, add_up
from headrace.domain.split_advice import SplitAdvice, advise
from headrace.domain.split_status import add_up_loads
from headrace.domain.worker import ExplainRoute, WorkerStatus
from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.fleet.deploy.supervisor import Supervisor
from headrace.ledger.backlog import find_backlog
from headrace.settings import Settings
from headrace.wiring.ledger_process import LedgerProcess, backlog_file
from headrace.wiring.metrics_text import merge_metrics, own_metrics
from headrace.wiring.status_view import (
    READY,
    USABLE,
    endpoint_summaries,
    handover_fits,
    model_summaries,
    replica_status,
    waiting_for,
    worker_summaries,
)

log = structlog.get_logger("headrace.supervisor")
SHOWN_BATCHES = 20
"""Open batches in a status; `/api/v1/batches` has all."""
RESTARTABLE = frozenset({ReplicaPhase.READY, ReplicaPhase.BACKING_OFF, ReplicaPhase.CRASH_LOOP})
"""In the other phases a replica is on its way to a fresh process, or out."""


@dataclass(slots=True, kw_only=True)
class InstanceOperations:
    """The supervisor as operators reach it.

    Concurrency: the supervisor's event loop.
    """

    settings: Settings
    supervisor: Supervisor
    ledger: LedgerProcess
    clock: Clock
    process: ProcessIdentity
    started_at: datetime
    inference_url: str
    control_url: str
    check_program: Callable[[], Awaitable[str | None]]
    """Whether the installed program starts at all; the answer says why not."""
    _upgrading: asyncio.TimerHandle | None = field(default=None)

    def declaration(self) -> Declaration:
        return self.supervisor.declaration

    def loaded(self) -> Loaded:
        return self.supervisor.loaded

    async def status(self) -> InstanceStatus:
        supervisor, now_mono_s = self.supervisor, self.clock.mono_s()
        workers = await supervisor.gateway.statuses()
        answers = [status for _, status in workers if status is not None]
        serving = [status for status in answers if not status.is_draining]
        replicas = tuple(replica_status(runner, now_mono_s) for runner in supervisor.fleet.runners.values())
        endpoints = endpoint_summaries(supervisor.gateway.plan, serving)
        models = model_summaries(supervisor.declaration, replicas, endpoints)
        waits_for = waiting_for(models)
        return InstanceStatus(
            version=__version__,
            pid=self.process.pid,
            started_at=self.started_at.timestamp(),
            config_file=str(supervisor.loaded.path) if supervisor.loaded.path else None,
            inference_url=self.inference_url,
            control_url=self.control_url,
            plan_revision=supervisor.revision,
            is_ready=waits_for == READY and any(endpoint.state in USABLE for endpoint in endpoints),
            reason=waits_for,
            models=tuple(models),
            replicas=replicas,
            endpoints=tuple(endpoints),
            workers=tuple(worker_summaries(workers)),
            ledger=self._ledger_summary(answers),
            handovers=handover_fits(serving),
            batches=await self._open_batches(),
        )

    async def is_ready(self) -> bool:
        """At least one pool can answer a request now."""
        return any(
            status is not None and status.is_ready and not status.is_draining
            for _, status in await self.supervisor.gateway.statuses()
        )

    async def reload(self, *, is_dry_run: bool, is_upgrade: bool) -> ReloadReport:
        """Adopt the declaration whole or not at all; for an upgrade, then execute the installed program anew."""
        outcome = await self.supervisor.reload(is_dry_run=is_dry_run)
        errors = list(outcome.errors)
        if is_upgrade and outcome.is_ok:
            broken = await self.check_program()
            if broken:
                errors.append(f"the installed program does not start, so nothing was upgraded: {broken}")
            elif not is_dry_run and self._upgrading is None:
                # A moment later, so that the answer to this very call still leaves this process.
                self._upgrading = asyncio.get_running_loop().call_later(0.3, self.supervisor.request_upgrade)
        report = ReloadReport(
            ok=not errors,
            is_dry_run=is_dry_run,
            is_upgrade=is_upgrade and not errors,
            plan_revision=self.supervisor.revision,
            changes=outcome.changes,
            needs_restart=outcome.needs_restart,
            errors=tuple(errors),
            pools=tuple(PoolChange(pool=one.pool, starts=one.starts, ends=one.ends) for one in outcome.pools),
        )
        log.info("reload asked for", ok=report.ok, dry_run=is_dry_run, upgrade=is_upgrade, errors=list(report.errors))
        return report

    async def restart_replica(self, replica: str) -> RestartReport:
        runners = self.supervisor.fleet.runners
        runner = runners.get(replica)
        if runner is None:
            hint = (
                did_you_mean(replica, sorted(runners)) if runners else "It runs none itself: all pools have endpoints."
            )
            message = f'headrace runs no replica "{replica[:80]}". {hint}'
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, message)
        pid = runner.process.pid if runner.process else None
        is_accepted = not runner.is_stopping and runner.life.phase in RESTARTABLE
        if is_accepted:
            runner.request_restart()
            log.info("restart asked for", replica=replica, pid=pid)
        phase = "leaving" if runner.is_stopping else runner.life.phase.value
        return RestartReport(
            replica=replica,
            is_accepted=is_accepted,
            pid=pid,
            message=self._restart_text(replica, runner.plan.pool) if is_accepted else f"{replica} is {phase} just now",
        )

    def _restart_text(self, replica: str, pool: str) -> str:
        others = [
            runner
            for name, runner in self.supervisor.fleet.runners.items()
            if name != replica and runner.plan.pool == pool and runner.life.phase is ReplicaPhase.READY
        ]
        if others:
            return f"{replica} finishes its requests and is restarted; {len(others)} other(s) of pool {pool} serve"
        return f"{replica} finishes its requests and is restarted; pool {pool} refuses new ones until it is back"

    async def routing(self) -> RoutingStatus:
        return add_up(await self.supervisor.gateway.routing())

    async def misses(self) -> MissStatus:
        return add_up_misses(await self.supervisor.gateway.misses())

    async def split_advice(self) -> SplitAdvice:
        return advise(add_up_loads(await self.supervisor.gateway.splits()))

    async def explain_route(self, wish: ExplainRoute) -> RouteExplanation:
        tenants = self.declaration().tenants
        if wish.tenant and wish.tenant not in tenants:
            message = f'there is no tenant "{wish.tenant[:128]}". {did_you_mean(wish.tenant, tenants)}'
            raise RequestError(ErrorCode.ROUTE_NOT_FOUND, message)
        found = await self.supervisor.gateway.explain_route(wish)
        if isinstance(found, str):
            raise RequestError(ErrorCode.INVALID_REQUEST, found)
        return found

    async def metrics_text(self) -> str:
        gateway, now_mono_s = self.supervisor.gateway, self.clock.mono_s()
        backlog = find_backlog(backlog_file(self.settings))
        own = own_metrics(
            [replica_status(runner, now_mono_s) for runner in self.supervisor.fleet.runners.values()],
            gateway_restarts=gateway.restarts,
            ledger_waiting_records=backlog.waiting_records if backlog else 0,
        )
        return merge_metrics(await gateway.metrics(), own)

    async def callers_changed(self) -> None:
        await self.supervisor.refresh_callers()

    async def queues(self) -> tuple[QueueStatus, ...]:
        return merge_queues(await self.supervisor.gateway.queues())

    async def batches(self, *, tenant: str | None, is_open: bool, limit: int) -> tuple[BatchView, ...]:
        folder = self.settings.batch_dir
        try:
            return await asyncio.to_thread(lambda: read_batches(folder, tenant=tenant, is_open=is_open, limit=limit))
        except BatchStoreUnreadableError as error:
            raise RequestError(ErrorCode.STORE_UNAVAILABLE, str(error)) from error

    async def files(self, *, tenant: str | None, limit: int) -> tuple[FileView, ...]:
        folder = self.settings.batch_dir
        try:
            return await asyncio.to_thread(lambda: read_files(folder, tenant=tenant, limit=limit))
        except BatchStoreUnreadableError as error:
            raise RequestError(ErrorCode.STORE_UNAVAILABLE, str(error)) from error

    async def _open_batches(self) -> tuple[BatchView, ...]:
        """For the status, which does without where they cannot be read."""
        try:
            return await self.batches(tenant=None, is_open=True, limit=SHOWN_BATCHES)
        except RequestError as error:
            log.warning("open batches cannot be shown", reason=error.message)
            return ()

    async def quota(self) -> tuple[LimitStatus, ...]:
        return merge_limits(await self.supervisor.gateway.quotas())

    def _ledger_summary(self, workers: list[WorkerStatus]) -> LedgerSummary:
        backlog = find_backlog(backlog_file(self.settings))
        return LedgerSummary(
            is_running=self.ledger.is_running,
            waiting_records=backlog.waiting_records if backlog else 0,
            waiting_bytes=backlog.waiting_bytes if backlog else 0,
            lag_s=backlog.lag_s if backlog else None,
            dropped=sum(worker.journal_dropped for worker in workers),
            pending_records=sum(worker.journal_pending for worker in workers),
            rows=backlog.rows if backlog else 0,
            error=backlog.error if backlog else self.ledger.trouble,
        )
