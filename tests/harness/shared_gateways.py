"""Two real gateway processes that hold limits together: two workers of one coordinator, or two gateways over Redis."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from tests.harness.raw_client import RawClient, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import whole

from headrace.domain.clock import SystemClock
from headrace.domain.tenant import KeyRecord
from headrace.fleet.deploy.coordinator import Coordinator

INPUT_TOKENS, OUTPUT_TOKENS = 10, 4
"""What every answer of `CountingEngine` has used."""
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "one two three four"},
                     "finish_reason": "stop"}],
        "usage": {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS,
                  "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS},
    }
).encode()  # fmt: skip


@dataclass
class CountingEngine:
    """A lean engine that counts, by the last word of the prompt, how many requests it has at once and in all."""

    hold_s: float = 0.0
    now: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    is_held: asyncio.Event | None = None
    """Where there is one, answers wait for it."""
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def __aenter__(self) -> "CountingEngine":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                found = re.search(rb"content-length: (\d+)", head)
                body = await reader.readexactly(int(found[1]) if found else 0)
                if head.startswith(b"post"):
                    await self._count(str(json.loads(body)["messages"][-1]["content"]).split()[-1])
                writer.write(whole(200, ANSWER if body else b'{"object":"list","data":[{"id":"m"}]}'))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _count(self, who: str) -> None:
        self.now[who] = self.now.get(who, 0) + 1
        self.most[who] = max(self.most.get(who, 0), self.now[who])
        if self.is_held is not None:
            await self.is_held.wait()
        await asyncio.sleep(self.hold_s)
        self.now[who] -= 1
        self.total[who] = self.total.get(who, 0) + 1


@dataclass
class SharedGateways:
    """What a test drives."""

    gateways: list[RunningGateway]
    engine: CountingEngine
    keys: dict[str, str]
    """By tenant."""
    coordinator: Coordinator | None

    async def call_until_refused(
        self, tenant: str, *, callers: int, refusals: int = 3, **fields: Any
    ) -> dict[int, int]:
        """So many callers, half at each gateway, send until each was refused so often; counts by status."""
        statuses: dict[int, int] = {}

        async def caller(index: int) -> None:
            refused = 0
            async with RawClient(self.gateways[index % len(self.gateways)].port) as client:
                while refused < refusals:
                    status = await self.send(client, tenant, **fields)
                    statuses[status] = statuses.get(status, 0) + 1
                    if status != 200:
                        refused += 1
                        await asyncio.sleep(0.05)

        await asyncio.gather(*(caller(index) for index in range(callers)))
        return statuses

    async def send(self, client: RawClient, tenant: str, **fields: Any) -> int:
        """One request; its status."""
        body = {
            "model": "m", "max_tokens": OUTPUT_TOKENS,
            "messages": [{"role": "user", "content": f"count for {tenant}"}], **fields,
        }  # fmt: skip
        await client.send(post(body, self.keys[tenant]))
        return (await client.answer()).status


@asynccontextmanager
async def sharing_gateways(
    folder: Path, tenants: dict[str, dict[str, Any]], *, redis: str | None = None, **sections: Any
) -> AsyncIterator[SharedGateways]:
    """Two gateways for `tenants`; over `redis`, or as two workers of a coordinator."""
    sharing = {**sections.pop("sharing", {}), **({"redis": redis} if redis else {})}
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(CountingEngine())
        timeouts = {"answer_timeout_s": 120.0, "first_token_timeout_s": 120.0}
        pool = remote_pool(f"http://127.0.0.1:{engine.port}", **timeouts, **sections.pop("pool", {}))
        gateway = {"workers": 1 if redis else 2, "sharing": sharing}
        declaration = declare({"p": pool}, tenants=tenants, gateway=gateway, **sections)
        keys: dict[str, str] = {}
        records: list[KeyRecord] = []
        for tenant in tenants:
            keys[tenant], record = new_key(tenant)
            records.append(record)
        gateways: list[RunningGateway] = []
        coordinator = None
        for index in range(2):
            running = RunningGateway(folder / (f"machine{index}" if redis else "machine"), declaration, tuple(records))
            running.serial = index
            gateways.append(running)
        if redis is None:
            gateways[0].settings.run_dir.mkdir(parents=True)
            coordinator = Coordinator(gateways[0].settings.leases_socket, SystemClock(), structlog.get_logger())
            await coordinator.open()
            stack.push_async_callback(coordinator.close)
        for running in gateways:
            await stack.enter_async_context(running)
        for running in gateways:
            await running.wait_ready()
        yield SharedGateways(gateways, engine, keys, coordinator)
