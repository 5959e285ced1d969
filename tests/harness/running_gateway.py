"""A real gateway worker process, configured over its control socket as the supervisor does it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from headrace.declaration.gateway_plan import EndpointAddress, GatewayPlan, compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.domain.admin import OWNER_OF_ALL
from headrace.domain.ids import TenantId
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota_status import LimitStatus
from headrace.domain.tenant import KeyRecord, Scope
from headrace.domain.worker import (
    Configure,
    Drain,
    ReadMetrics,
    ReadQueues,
    ReadQuota,
    ReadStatus,
    SetKeys,
    WorkerReply,
    WorkerStatus,
)
from headrace.gateway.routing.disaggregation.handovers import LEARNED_POINTS
from headrace.settings import load_settings
from headrace.tenancy.keys import generate_key

START_S = 60.0
"""A worker that has not opened its socket by then has failed; the machine may be busy."""


def new_key(tenant: str = "default", scope: Scope = Scope.INFERENCE, **more: Any) -> tuple[str, KeyRecord]:
    """A key and its record; an admin key may everything."""
    clear_text, record = generate_key(tenant=TenantId(tenant), scope=scope, created_at=datetime.now(tz=UTC), **more)
    grant = OWNER_OF_ALL if scope is Scope.ADMIN else None
    return clear_text, msgspec.structs.replace(record, grant=grant)


def declare(pools: dict[str, dict[str, Any]], **sections: Any) -> Declaration:
    """A declaration with one model `m` unless `models` says otherwise."""
    models = sections.pop("models", {"m": {}})
    return Declaration.model_validate({"models": models, "pools": pools, **sections})


def remote_pool(*urls: str, **keys: Any) -> dict[str, Any]:
    """A pool of engines that run elsewhere, with short probes."""
    probe = {"interval_s": 0.1, "timeout_s": 1.0, **keys.pop("probe", {})}
    return {"model": "m", "engine": "openai", "endpoints": list(urls), "probe": probe, **keys}


class RunningGateway:
    """One worker process. `async with RunningGateway(state_dir, declaration) as gateway`."""

    def __init__(self, state_dir: Path, declaration: Declaration, keys: tuple[KeyRecord, ...] = ()) -> None:
        self.settings = load_settings({"HEADRACE_STATE_DIR": str(state_dir), "HOME": str(state_dir)})
        self.declaration = declaration
        self.key, record = new_key()
        self.keys = (record, *keys)
        self.revision = 0
        self.serial = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self.listener.getsockname()[1]
        self.process: asyncio.subprocess.Process | None = None
        self.log_path = state_dir / "worker.log"
        self.program: tuple[str, ...] = ("-m", "headrace.gateway")
        """What Python runs; a test may plant a fault."""
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "RunningGateway":
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self.listener.close()

    async def start(self) -> None:
        """Start the worker, give it its keys and plan, and wait until the plan is in force."""
        state = self.settings.state_dir
        state.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, *self.program, "--worker", str(self.serial),
                "--listen-fd", str(self.listener.fileno()), "--supervisor-pid", str(os.getpid()),
                pass_fds=[self.listener.fileno()], stdout=log, stderr=log,
                env={**os.environ, "HEADRACE_STATE_DIR": str(state)},
            )  # fmt: skip
        async with asyncio.timeout(START_S):
            while self._link is None:
                assert self.process.returncode is None, self.log_path.read_text()
                with contextlib.suppress(OSError):
                    path = str(self.settings.worker_socket(self.serial))
                    self._link = await asyncio.open_unix_connection(path, limit=2**24)
                await asyncio.sleep(0.02)
        await self.command(SetKeys(keys=self.keys))
        reply = await self.configure(self.declaration)
        assert reply.ok, reply.message

    async def stop(self) -> None:
        """End the process, gently at first."""
        if self._link is not None:
            self._link[1].close()
            self._link = None
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(30):
                    await self.process.wait()
            except TimeoutError:
                self.process.kill()
                await self.process.wait()

    async def command(self, command: msgspec.Struct) -> WorkerReply:
        assert self._link is not None
        reader, writer = self._link
        writer.write(msgspec.json.encode(command) + b"\n")
        return msgspec.json.decode(await reader.readline(), type=WorkerReply)

    async def configure(self, declaration: Declaration) -> WorkerReply:
        """Send the plan of `declaration`; its pools must all be remote."""
        self.declaration = declaration
        self.revision += 1
        plan = compile_gateway_plan(declaration, addresses_of(declaration), revision=self.revision)
        return await self.configure_plan(plan)

    async def configure_plan(self, plan: GatewayPlan) -> WorkerReply:
        return await self.command(Configure(plan=msgspec.Raw(msgspec.json.encode(plan))))

    async def status(self) -> WorkerStatus:
        reply = await self.command(ReadStatus())
        return msgspec.json.decode(reply.text, type=WorkerStatus)

    async def queues(self) -> tuple[QueueStatus, ...]:
        return msgspec.json.decode((await self.command(ReadQueues())).text, type=tuple[QueueStatus, ...])

    async def quota(self) -> tuple[LimitStatus, ...]:
        return msgspec.json.decode((await self.command(ReadQuota())).text, type=tuple[LimitStatus, ...])

    async def metrics(self) -> str:
        return (await self.command(ReadMetrics())).text

    async def metric(self, line_start: str) -> float | None:
        """The value of the first sample whose line starts so."""
        for line in (await self.metrics()).splitlines():
            if line.startswith(line_start):
                return float(line.rsplit(" ", 1)[1])
        return None

    async def drain(self, bound_s: float, *, is_replacement: bool = False) -> None:
        await self.command(Drain(bound_s=bound_s, is_replacement=is_replacement))

    async def wait_ready(self, *, endpoints: int = 1) -> None:
        """Wait until so many endpoints are usable."""
        async with asyncio.timeout(START_S):
            while sum(e.state in ("ready", "busy") for e in (await self.status()).endpoints) < endpoints:
                await asyncio.sleep(0.02)

    async def wait_idle(self) -> WorkerStatus:
        """Wait until nothing is in flight; the gauge must return to zero."""
        async with asyncio.timeout(30):
            while True:
                status = await self.status()
                if status.in_flight == 0 and all(e.in_flight == 0 for e in status.endpoints):
                    return status
                await asyncio.sleep(0.02)

    async def wait_warm(self, pool: str = "prefill") -> None:
        """Wait for the gateway's own first hand-overs, which nobody asked for: until a prefill pool's speed is known,
        from when on there are none, and the last of them is over."""
        taught = f'headrace_routing_ttft_prediction_ratio_count{{pool="{pool}"}}'
        async with asyncio.timeout(120):
            while (await self.metric(taught) or 0.0) < LEARNED_POINTS:
                await asyncio.sleep(0.02)
        await self.wait_idle()


def addresses_of(declaration: Declaration) -> dict[str, tuple[EndpointAddress, ...]]:
    """The endpoints of remote pools, as the supervisor names them."""
    return {
        name: tuple(EndpointAddress(endpoint=f"{name}/{url.split('//')[1]}", url=url) for url in pool.endpoints)
        for name, pool in declaration.pools.items()
    }
