"""A running control API: real sockets, a real database, and a supervisor reduced to what it answers."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import yaml

from headrace.batch.look import BatchView, FileView, read_batches, read_files
from headrace.control_api.app import create_app
from headrace.control_api.operations import InstanceStatus, LedgerSummary, ModelSummary, ReloadReport, RestartReport
from headrace.control_api.server import ControlServer, bind_unix
from headrace.database.connect import Database, open_database
from headrace.database.migrate import migrate
from headrace.declaration.load import Loaded
from headrace.declaration.model import Declaration
from headrace.domain.clock import SystemClock
from headrace.domain.ids import TenantId
from headrace.domain.miss_status import MissStatus
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota_status import LimitStatus
from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.split_advice import SplitAdvice
from headrace.domain.tenant import Scope
from headrace.domain.worker import ExplainRoute
from headrace.tenancy.entry_store import EntryStore
from headrace.tenancy.key_store import KeyStore
from headrace.tenancy.overlay import merge

CONFIG = """\
version: 1
models: {small: {}, large: {}}
pools:
  p: {model: small, engine: vllm, endpoints: ["http://127.0.0.1:1"]}
tenants:
  team-a:
    projects: {web: {}}
  team-b:
    models: [small]
    limits: {requests_per_min: 7}
  frozen: {suspended: true}
organisations:
  acme: {}
"""
DECLARATION = Declaration.model_validate(yaml.safe_load(CONFIG))


@dataclass
class StandInOperations:
    """Answers as the supervisor does, from plain fields."""

    ready: bool = True
    failure: Exception | None = None
    calls: list[str] = field(default_factory=list)
    entries: EntryStore | None = None
    config: Path | None = None
    batch_dir: Path = Path("nowhere")
    limits: tuple[LimitStatus, ...] = ()

    def declaration(self) -> Declaration:
        assert self.entries is not None
        return merge(DECLARATION, self.entries.read())

    def loaded(self) -> Loaded:
        return Loaded(declaration=DECLARATION, path=self.config, digest="")

    async def status(self) -> InstanceStatus:
        if self.failure is not None:
            raise self.failure
        return InstanceStatus(
            version="0",
            pid=1,
            started_at=1.0,
            config_file=None,
            inference_url="http://127.0.0.1:7070",
            control_url="http://127.0.0.1:7071",
            plan_revision=3,
            is_ready=self.ready,
            reason="ready",
            models=(ModelSummary(model="small", pools=("p",), endpoints=1, ready_endpoints=1, context_tokens=2048),),
            replicas=(),
            endpoints=(),
            workers=(),
            ledger=LedgerSummary(
                is_running=True, waiting_records=0, waiting_bytes=0, lag_s=None, dropped=0, rows=0, error=None
            ),
        )

    async def is_ready(self) -> bool:
        return self.ready

    async def reload(self, *, is_dry_run: bool, is_upgrade: bool) -> ReloadReport:
        self.calls.append(f"reload dry_run={is_dry_run} upgrade={is_upgrade}")
        errors = () if self.ready else ("pools: none",)
        return ReloadReport(ok=self.ready, is_dry_run=is_dry_run, is_upgrade=is_upgrade, plan_revision=3, errors=errors)

    async def restart_replica(self, replica: str) -> RestartReport:
        self.calls.append(f"restart {replica}")
        return RestartReport(replica=replica, is_accepted=self.ready, message="so be it", pid=4)

    async def misses(self) -> MissStatus:
        return MissStatus(workers=1, answers=0, examined=0, explained=0, kept_bytes=0, cpu_s=0.0, rows=())

    async def routing(self) -> RoutingStatus:
        return RoutingStatus(workers=1, tenants=(), families=(), endpoints=())

    async def split_advice(self) -> SplitAdvice:
        return SplitAdvice(workers=1, models=())

    async def explain_route(self, wish: ExplainRoute) -> RouteExplanation:
        self.calls.append(f"explain {wish.path} {wish.tenant} {wish.request_class} {len(wish.body)}")
        return RouteExplanation(
            worker_pid=1,
            model="small",
            request_class=wish.request_class or "standard",
            tenant=wish.tenant,
            input_tokens=3,
            blocks=0,
            output_tokens=None,
            picked=None,
            reason="no endpoint is ready",
            candidates=(),
        )

    async def metrics_text(self) -> str:
        return "# TYPE headrace_up gauge\nheadrace_up 1\n"

    async def callers_changed(self) -> None:
        self.calls.append("callers_changed")

    async def batches(self, *, tenant: str | None, is_open: bool, limit: int) -> tuple[BatchView, ...]:
        return read_batches(self.batch_dir, tenant=tenant, is_open=is_open, limit=limit)

    async def files(self, *, tenant: str | None, limit: int) -> tuple[FileView, ...]:
        return read_files(self.batch_dir, tenant=tenant, limit=limit)

    async def queues(self) -> tuple[QueueStatus, ...]:
        return ()

    async def quota(self) -> tuple[LimitStatus, ...]:
        return self.limits


@dataclass
class RunningApi:
    """What a test talks to."""

    operations: StandInOperations
    keys: KeyStore
    entries: EntryStore
    database: Database
    tcp: httpx.AsyncClient
    """Without a key."""
    local: httpx.AsyncClient
    """Over the Unix socket."""
    socket_path: Path
    database_path: Path
    admin: dict[str, str]
    """Header of an admin key."""
    inference: dict[str, str]
    """Header of an inference key."""


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database with the schema, made once."""
    path = tmp_path_factory.mktemp("schema") / "headrace.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
async def api(tmp_path: Path, migrated: Path) -> AsyncIterator[RunningApi]:
    path = tmp_path / "headrace.db"
    shutil.copyfile(migrated, path)
    database = open_database(f"sqlite:///{path}")
    clock = SystemClock()
    keys = KeyStore(database, clock)
    config = tmp_path / "headrace.yaml"
    config.write_text(CONFIG)
    entries = EntryStore(database, clock)
    operations = StandInOperations(entries=entries, config=config)
    socket_path = tmp_path / "run" / "control.sock"
    tcp_socket, unix_socket = socket.create_server(("127.0.0.1", 0)), bind_unix(socket_path)
    server = ControlServer(
        [
            (create_app(operations, database, keys, clock, is_local=False), tcp_socket),
            (create_app(operations, database, keys, clock, is_local=True), unix_socket),
        ]
    )
    admin, _ = keys.create_key(tenant=TenantId("team-a"), scope=Scope.ADMIN)
    inference, _ = keys.create_key(tenant=TenantId("team-a"), scope=Scope.INFERENCE)
    port = tcp_socket.getsockname()[1]
    unix = httpx.AsyncHTTPTransport(uds=str(socket_path), verify=False)  # reading authorities takes longer than a test
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30, verify=False) as tcp,
            httpx.AsyncClient(base_url="http://control", transport=unix, timeout=30) as local,
        ):
            yield RunningApi(
                operations=operations,
                keys=keys,
                entries=entries,
                database=database,
                tcp=tcp,
                local=local,
                socket_path=socket_path,
                database_path=path,
                admin={"authorization": f"Bearer {admin}"},
                inference={"authorization": f"Bearer {inference}"},
            )
        server.stop()
    database.close()
