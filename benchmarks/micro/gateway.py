"""A gateway worker in this process whose callers and engines are plain objects instead of sockets."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.declaration.gateway_plan import EndpointAddress, compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.domain.ids import TenantId
from headrace.domain.tenant import Scope
from headrace.gateway.http.caller_connection import CallerConnection
from headrace.gateway.worker import Worker
from headrace.settings import load_settings
from headrace.tenancy.keys import generate_key

CALLERS = 32
TWO_LIMITS = {"requests_per_min": 100_000_000, "concurrent_requests": 100_000}
MANY_LIMITS = {**TWO_LIMITS, "input_tokens_per_min": 10**10, "output_tokens_per_min": 10**10}
TENANCY: dict[str, dict[str, Any]] = {
    "none": {"tenant": {}},
    "two": {"tenant": {"limits": TWO_LIMITS}},
    "many": {
        "tenant": {"limits": MANY_LIMITS, "organisation": "bench"},
        "organisations": {"bench": {"limits": {"requests_per_min": 10**9}, "budget": {"per_month": 10**6}}},
        "prices": {"models": {"mock": {"input_per_million": 0.1, "output_per_million": 0.4}}},
    },
}
"""What is declared of the callers, by the word of `--limits`. `many`: six meters over two levels, one of them money."""


class Wire(asyncio.Transport):
    """One end of a connection: what is written is kept until it is looked at."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.written: deque[bytes] = deque()
        self.write = self.written.append  # a bound C method: as cheap as a fake can be
        self.writelines = self.written.extend
        protocol.connection_made(self)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def abort(self) -> None: ...


class EngineSide:
    """Stands in for the loop where the gateway connects: every connection leads here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.wires: list[Wire] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def create_connection(self, factory: Callable[[], Any], *_: object, **__: object) -> tuple[Wire, Any]:
        wire = Wire(factory())
        self.wires.append(wire)
        return wire, wire.protocol

    def with_requests(self) -> list[Wire]:
        """Connections on which a request waits for an answer; probes are answered at once."""
        waiting: list[Wire] = []
        for wire in self.wires:
            if wire.written:
                if wire.written[0].startswith(b"GET "):
                    wire.written.clear()
                    self._loop.call_soon(wire.protocol.data_received, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                else:
                    waiting.append(wire)
        return waiting


class LocalGateway:
    """Callers and engines of one worker."""

    def __init__(self, key: str, callers: list[Wire], engines: EngineSide) -> None:
        self.key = key
        self.callers = callers
        self.engines = engines


@contextlib.asynccontextmanager
async def local_gateway(
    folder: Path, *, backends: int, limits: str = "two", tenants: int = 1, keys: int = 1, places: int | None = None
) -> AsyncIterator[LocalGateway]:
    """A worker with everything on, ready to be sent requests by the first of its tenants."""
    loop = asyncio.get_running_loop()
    engines = EngineSide(loop)
    settings = load_settings({"HEADRACE_STATE_DIR": str(folder), "HOME": str(folder)})
    listener = socket.create_server(("127.0.0.1", 0))  # the worker wants one; nobody connects to it
    worker = Worker(settings, 0, listener, engines)  # pyright: ignore[reportArgumentType] (a loop but for one method)
    key, record = generate_key(tenant=TenantId("bench"), scope=Scope.INFERENCE, created_at=datetime.now(tz=UTC))
    others = [
        generate_key(tenant=TenantId(f"t{number % tenants}"), scope=Scope.INFERENCE, created_at=record.created_at)[1]
        for number in range(keys - 1)
    ]
    worker.set_keys((record, *others))
    tenancy = dict(TENANCY[limits])
    tenant = tenancy.pop("tenant")
    urls = [f"http://127.0.0.1:{port}" for port in range(1, backends + 1)]
    declaration = Declaration.model_validate(
        {
            "models": {"mock": {}},
            "pools": {"mock": {"model": "mock", "engine": "vllm", "endpoints": urls, "queue": {"sequences": places}}},
            "tenants": {"bench": tenant, **{f"t{number}": tenant for number in range(tenants - 1)}},
            **tenancy,
        }
    )
    addresses = {"mock": tuple(EndpointAddress(endpoint=url, url=url) for url in urls)}
    answering = loop.create_task(_answer_probes(engines))
    await worker.configure(compile_gateway_plan(declaration, addresses, revision=1))
    answering.cancel()
    callers = [Wire(CallerConnection(worker, loop)) for _ in range(CALLERS)]
    try:
        yield LocalGateway(key, callers, engines)
    finally:
        worker.drain(0.0, is_replacement=False)
        await worker.gone.wait()
        listener.close()


async def _answer_probes(engines: EngineSide) -> None:
    while True:
        engines.with_requests()
        await asyncio.sleep(0.001)
