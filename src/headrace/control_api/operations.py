"""What the control API needs of the running supervisor; declared here by its consumer, implemented by the fleet's
supervisor, joined in `wiring.py`. The structs are also what `headrace status --json` prints.
"""

from typing import Protocol

import msgspec

from headrace.batch.look import BatchView, FileView
from headrace.declaration.load import Loaded
from headrace.declaration.model import Declaration
from headrace.domain.miss_status import MissStatus
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota_status import LimitStatus
from headrace.domain.routing_status import HandoverFit, RouteExplanation, RoutingStatus
from headrace.domain.split_advice import SplitAdvice
from headrace.domain.worker import ExplainRoute, WorkerStatus


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One phase a replica went through, and how long it lasted (so far)."""

    phase: str
    """ReplicaPhase value."""
    duration_s: float


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One engine process that headrace runs."""

    endpoint: str
    pool: str
    engine: str
    launch: str
    """`Launch.description`; empty before the first start."""
    url: str | None
    pid: int | None
    phase: str
    reason: str
    """Why it is in this phase, for a person."""
    since_at: float
    spans: tuple[PhaseSpan, ...] = ()
    restarts: int = 0
    last_lines: tuple[str, ...] = ()
    """The engine's last words; filled where it failed."""
    failure: str | None = None
    """Why the last try to get it ready ended; None: it is ready, or nothing has failed."""


class EndpointSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint over all gateway workers: counters summed, the worst state shown."""

    endpoint: str
    pool: str
    model: str
    engine: str
    url: str
    state: str
    """EndpointState value."""
    reason: str
    since_at: float
    in_flight: int
    requests: int
    failures: int
    version: str | None = None
    """Its engine's; None: not measured."""


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One declared model."""

    model: str
    pools: tuple[str, ...]
    endpoints: int
    ready_endpoints: int
    context_tokens: int
    embeddings: bool = False
    state: str = ""
    """For a person: "ready", "fetching 41 %", "no endpoint ready", ..."""


class GatewayWorkerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway process."""

    worker: int
    pid: int | None
    restarts: int
    """How often a worker in this place was started again after it died."""
    status: WorkerStatus | None
    """None: it did not answer its supervisor."""


class LedgerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How far the database is behind the journal (`headrace.ledger.backlog.find_backlog`)."""

    is_running: bool
    """The projection's process is alive."""
    waiting_records: int
    """Records on disk that are not in the database yet."""
    waiting_bytes: int
    lag_s: float | None
    """Upper bound for the age of the oldest waiting record; None: nothing waits."""
    dropped: int
    """Records lost to a full or slow disk, over all workers since their start."""
    rows: int
    """Rows written since the projection's start."""
    error: str | None
    """Why the database cannot be written at the moment."""
    pending_records: int = 0
    """Records in the workers' memory that are not on disk yet: many for longer where the disk is full."""


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole instance at one moment."""

    version: str
    pid: int
    started_at: float
    config_file: str | None
    """None: the built-in declaration."""
    inference_url: str
    control_url: str
    plan_revision: int
    is_ready: bool
    """Every model that a pool serves has an endpoint that can answer; GET /ready asks for one of them only."""
    reason: str
    """What is being waited for, or "ready"."""
    models: tuple[ModelSummary, ...]
    replicas: tuple[ReplicaStatus, ...]
    endpoints: tuple[EndpointSummary, ...]
    workers: tuple[GatewayWorkerSummary, ...]
    ledger: LedgerSummary
    handovers: tuple[HandoverFit, ...] = ()
    """Which pairs of prefill and decode engines go together, as the worker sees it that finds the fewest."""
    batches: tuple[BatchView, ...] = ()
    """Those that are not over, the latest first."""


class PoolChange(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas of one pool that a reload starts and ends. Those that end do so once those that start are ready."""

    pool: str
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


class ReloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload changed, or would change; the same object for `--dry-run` and the real one."""

    ok: bool
    is_dry_run: bool
    is_upgrade: bool
    """The gateway workers were replaced, too."""
    plan_revision: int
    """The revision in force after the call."""
    changes: tuple[str, ...] = ()
    """One line each, such as "pools.chat.replicas: 1 -> 2"."""
    needs_restart: tuple[str, ...] = ()
    """Changed keys that take effect only at the next `headrace up`."""
    errors: tuple[str, ...] = ()
    """Why nothing was changed."""
    pools: tuple[PoolChange, ...] = ()
    """Where replicas are started or ended; under way when this is said."""
    replicas: tuple[ReplicaStatus, ...] = ()
    """With `headrace reload --wait`: those it waited for, as they are now."""


class RestartReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a replica is being restarted; it takes its time, which `status` shows."""

    replica: str
    is_accepted: bool
    message: str
    """What happens now, or why nothing does."""
    pid: int | None
    """The process that is to end; None: there was none."""


class Operations(Protocol):
    """The supervisor as operators reach it.

    Concurrency: called on the supervisor's event loop; every call is bounded in time by the implementer, answers even
    while engines load, and survives cancellation by a caller that leaves.
    """

    def declaration(self) -> Declaration:
        """The declaration in force, with the organisations and tenants that the API has added."""
        ...

    def loaded(self) -> Loaded:
        """What the file alone says, and where it is."""
        ...

    async def status(self) -> InstanceStatus: ...

    async def is_ready(self) -> bool:
        """At least one pool can answer a request now."""
        ...

    async def reload(self, *, is_dry_run: bool, is_upgrade: bool) -> ReloadReport:
        """Read the declaration again and adopt it whole, or change nothing; `is_upgrade` also replaces the workers."""
        ...

    async def restart_replica(self, replica: str) -> RestartReport:
        """Drain one replica and start it anew; returns before that is done. Raises: RequestError: there is none."""
        ...

    async def routing(self) -> RoutingStatus:
        """What all workers know of prompts and cache hits, added up."""
        ...

    async def misses(self) -> MissStatus:
        """Why prompts missed the engines' caches, all workers together."""
        ...

    async def split_advice(self) -> SplitAdvice:
        """Whether prefill and decode apart pay for the last hour's traffic of all workers, and in what ratio."""
        ...

    async def explain_route(self, wish: ExplainRoute) -> RouteExplanation:
        """Where a worker would send a request now. Raises: RequestError."""
        ...

    async def metrics_text(self) -> str:
        """All workers' and the supervisor's own metrics, merged, in Prometheus text format."""
        ...

    async def callers_changed(self) -> None:
        """A key, tenant or organisation was changed: tell the workers now, not at the next poll."""
        ...

    async def queues(self) -> tuple[QueueStatus, ...]:
        """The queue of each model, over all gateway workers."""
        ...

    async def batches(self, *, tenant: str | None, is_open: bool, limit: int) -> tuple[BatchView, ...]:
        """The latest batches, of one tenant or all. Raises: RequestError where they cannot be read."""
        ...

    async def files(self, *, tenant: str | None, limit: int) -> tuple[FileView, ...]:
        """The latest files of callers, of one tenant or all. Raises: RequestError where they cannot be read."""
        ...

    async def quota(self) -> tuple[LimitStatus, ...]:
        """Every limit in force and what is used of it, over all gateway workers."""
        ...
