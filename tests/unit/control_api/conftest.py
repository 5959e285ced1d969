"""A running control API: real sockets, a real database, and a supervisor reduced to what it answers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from headrace.control_api.app import create_app
from headrace.control_api.operations import InstanceStatus, LedgerSummary, ModelSummary, ReloadReport, RestartReport
from headrace.control_api.server import ControlServer, bind_unix
from headrace.database.connect import open_database
from headrace.database.migrate import migrate
from headrace.declaration.model import Declaration
from headrace.domain.clock import SystemClock
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.tenancy.key_store import KeyStore

DECLARATION = Declaration.model_validate(
    {
        "models": {"small": {}, "large": {}},
        "pools": {"p": {"model": "small", "engine": "vllm", "endpoints": ("http://127.0.0.1:1",)}},
        "tenants": {"team-a": {}, "team-b": {"models": ("small",), "limits": {"requests_per_min": 7}}},
    }
)


@dataclass
class StandInOperations:
    """Answers as the supervisor does, from plain fields."""

    ready: bool = True
    failure: Exception | None = None
    calls: list[str] = field(default_factory=list)

    def declaration(self) -> Declaration:
        return DECLARATION

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

    async def metrics_text(self) -> str:
        return "# TYPE headrace_up gauge\nheadrace_up 1\n"

    async def keys_changed(self) -> None:
        self.calls.append("keys_changed")


@dataclass
class RunningApi:
    """What a test talks to."""

    operations: StandInOperations
    keys: KeyStore
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


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[RunningApi]:
    path = tmp_path / "headrace.db"
    migrate(f"sqlite:///{path}")
    database = open_database(f"sqlite:///{path}")
    clock = SystemClock()
    keys = KeyStore(database, clock)
    operations = StandInOperations()
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
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as tcp,
            httpx.AsyncClient(
                base_url="http://control", transport=httpx.AsyncHTTPTransport(uds=str(socket_path)), timeout=30
            ) as local,
        ):
            yield RunningApi(
                operations=operations,
                keys=keys,
                tcp=tcp,
                local=local,
                socket_path=socket_path,
                database_path=path,
                admin={"authorization": f"Bearer {admin}"},
                inference={"authorization": f"Bearer {inference}"},
            )
        server.stop()
    database.close()
