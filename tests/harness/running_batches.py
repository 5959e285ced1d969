"""A gateway worker and the batch process beside it, as the supervisor runs them; each can be killed and restarted."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from tests.harness.running_gateway import RunningGateway

from headrace.batch.launch import batch_argv
from headrace.control_api.server import bind_unix
from headrace.declaration.batch_section import compile_batch_plan
from headrace.declaration.model import Declaration
from headrace.domain.tenant import KeyRecord

DEADLINE_S = 60.0


class RunningBatches:
    """`async with RunningBatches(folder, declaration) as batches`; `batches.client()` is an official client."""

    def __init__(self, folder: Path, declaration: Declaration, keys: tuple[KeyRecord, ...] = ()) -> None:
        self.gateway = RunningGateway(folder, declaration, keys)
        self.plan = compile_batch_plan(declaration.batch, body_bytes=declaration.gateway.limits.body_bytes)
        self.folder = self.gateway.settings.batch_dir
        self.log_path = folder / "batch.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[AsyncOpenAI] = []
        self._listener = bind_unix(self.gateway.settings.batch_socket)

    async def __aenter__(self) -> "RunningBatches":
        self.start()
        try:
            await self.gateway.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            await client.close()
        await self.stop(signal.SIGTERM)
        await self.gateway.__aexit__()
        self._listener.close()

    def start(self) -> None:
        """Start the batch process."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                batch_argv(self.plan, self._listener.fileno()),
                pass_fds=[self._listener.fileno()],
                stdout=log,
                stderr=log,
                env={**os.environ, "HEADRACE_STATE_DIR": str(self.gateway.settings.state_dir)},
            )

    async def stop(self, number: int = signal.SIGKILL) -> None:
        """End the batch process with a signal; SIGKILL is what a crash looks like."""
        if self.process is not None:
            self.process.send_signal(number)
            await asyncio.to_thread(self.process.wait, DEADLINE_S)
            self.process = None

    def client(self, key: str | None = None) -> AsyncOpenAI:
        """The official client, with a key."""
        client = AsyncOpenAI(base_url=f"{self.gateway.url}/v1", api_key=key or self.gateway.key, max_retries=0)
        self._clients.append(client)
        return client

    def log(self) -> str:
        return self.log_path.read_text()

    async def wait_over(self, client: AsyncOpenAI, batch_id: str) -> Any:
        """Wait until the batch has ended, however; returns it."""
        return await self.wait_until(client, batch_id, lambda batch: batch.status in OVER)

    async def wait_until(self, client: AsyncOpenAI, batch_id: str, is_so: Any) -> Any:
        """Wait until something holds of the batch; returns it."""
        async with asyncio.timeout(DEADLINE_S):
            while not is_so(batch := await client.batches.retrieve(batch_id)):
                await asyncio.sleep(0.05)
        return batch


OVER = ("completed", "failed", "expired", "cancelled")
