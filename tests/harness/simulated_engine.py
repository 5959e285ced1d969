"""A simulated engine as a process of its own, and as an engine that the contract checks can end and start again."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from tests.harness.ports import free_port

from headrace.domain.endpoint import EngineKind
from headrace.engines.simulated.config import DialectKind, EngineConfig
from headrace.engines.simulated.hardware import Hardware, model_of
from headrace.engines.simulated.http import Connection
from headrace.engines.simulated.service import Service

DRIVERS = {
    DialectKind.VLLM: EngineKind.VLLM,
    DialectKind.SGLANG: EngineKind.SGLANG,
    DialectKind.TENSORRT_LLM: EngineKind.TENSORRT_LLM,
    DialectKind.TRITON: EngineKind.TENSORRT_LLM,
    DialectKind.LLAMACPP: EngineKind.LLAMACPP,
}
"""Which driver goes with a dialect."""


MODEL = "sim-model"


def simulated(dialect: DialectKind = DialectKind.VLLM, *, step_s: float = 0.001, **more: Any) -> EngineConfig:
    """A small engine whose steps all take `step_s`; `more` are members of EngineConfig or of Hardware."""
    members = set(Hardware.__dataclass_fields__)
    hardware = {name: more.pop(name) for name in list(more) if name in members}
    wanted = Hardware(dialect=dialect, gpu="none", model="none", step_s=step_s, **{"context_tokens": 2048, **hardware})
    return EngineConfig(dialect=dialect, served_model=MODEL, engine=model_of(wanted), **more)


class Died(list[str]):
    """What engines said when they died, which ends a process of its own elsewhere."""


@contextlib.asynccontextmanager
async def serving(config: EngineConfig) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """The engine in this process, ready, on its port or one that is free; and a client to it."""
    died = Died()
    service = Service(config, die=died.append)
    service.become_ready()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(service), config.host, config.port)
    service.port = server.sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://{config.host}:{service.port}", timeout=20) as client:
            yield service, client
    finally:
        server.close()
        service.close()
        await server.wait_closed()
        await asyncio.sleep(0)


class SimulatedProcess:
    """`headrace sim engine` on a fixed port; see `tests.contract.checks.EngineUnderTest`.

    Every step takes `step_ms`, whatever it does, so that a test knows what to expect.
    """

    start_bound_s = 30.0

    def __init__(self, dialect: DialectKind, folder: Path, *arguments: str, step_ms: float = 2) -> None:
        self.dialect = dialect
        self.kind = DRIVERS[dialect]
        self.served_model = MODEL
        self.context_tokens = 2048
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = folder / f"engine-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.arguments: tuple[str, ...] = (
            *("--dialect", dialect.value, "--served-model-name", self.served_model),
            *("--step-ms", str(step_ms), "--context-tokens", str(self.context_tokens), "--load-s", "0.3"),
            *arguments,
        )

    async def start(self) -> None:
        command = [sys.executable, "-m", "headrace", "sim", "engine", *self.arguments, "--port", str(self.port)]
        with self.log_path.open("ab") as log:
            # It returns at once, and outlives event loops.
            self.process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: ASYNC220

    async def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait, 20)
            self.process = None

    async def wait_gone(self, bound_s: float = 20) -> int:
        """Wait for the process to end by itself; its exit status."""
        assert self.process is not None
        return await asyncio.to_thread(self.process.wait, bound_s)

    async def running_requests(self) -> int:
        async with httpx.AsyncClient(timeout=10) as client:
            return (await client.get(f"{self.url}/sim/timing")).json()["running"]

    async def wait_ready(self) -> None:
        """Wait until it generates."""
        ends_mono_s = time.monotonic() + self.start_bound_s
        async with httpx.AsyncClient(timeout=10) as client:
            while time.monotonic() < ends_mono_s:
                try:
                    if (await client.get(f"{self.url}/v1/models")).status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                assert self.process is None or self.process.poll() is None, self.log()
                await asyncio.sleep(0.02)
        raise AssertionError(f"not ready: {self.log()}")

    async def __aenter__(self) -> "SimulatedProcess":
        await self.start()
        try:
            await self.wait_ready()
        except BaseException:
            await self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def set_faults(self, *faults: dict[str, object]) -> None:
        async with httpx.AsyncClient(timeout=10) as client:
            answer = await client.post(f"{self.url}/sim/faults", json={"faults": list(faults)})
            assert answer.status_code == 200, answer.text

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""
