"""Inputs of batches, and what came of them; and an engine that answers lines when it is told to."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI
from tests.harness.running_batches import RunningBatches
from tests.harness.running_gateway import declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole

CHAT = "/v1/chat/completions"


def line(name: str, text: str = "hi", **changes: Any) -> dict[str, Any]:
    """One line of input; the engine sees its name."""
    body = {"model": "m", "messages": [{"role": "user", "content": f"{text} <{name}>"}], **changes.pop("body", {})}
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": body, **changes}


def jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


async def begin(client: AsyncOpenAI, content: bytes, **wish: Any) -> Any:
    """Upload the input and create the batch."""
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    return await client.batches.create(
        **{"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **wish}
    )


async def results(client: AsyncOpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """The results in a file by custom_id; each must be there once."""
    if file_id is None:
        return {}
    found = [json.loads(text) for text in (await client.files.content(file_id)).text.splitlines()]
    by_name = {one["custom_id"]: one for one in found}
    assert len(by_name) == len(found), "a line is answered more than once"
    return by_name


class Turns:
    """`script:wait` is answered when a turn is given; everything else at once."""

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)
        self.engine = ScriptedEngine({"wait": self._wait})
        self.batches: RunningBatches

    async def _wait(self, _engine: ScriptedEngine, _request: Seen, writer: asyncio.StreamWriter) -> None:
        await self.turns.acquire()
        writer.write(whole(200, completion()))
        await writer.drain()

    def serve(self, lines: int) -> None:
        for _ in range(lines):
            self.turns.release()

    async def wait_open(self, requests: int) -> None:
        """Until the engine holds so many requests: what was cut has also been seen to be."""
        async with asyncio.timeout(30):
            while self.engine.open_requests != requests:
                await asyncio.sleep(0.01)

    def times_seen(self, name: str) -> int:
        return sum(f"<{name}>" in request.body.decode() for request in self.engine.seen)


@contextlib.asynccontextmanager
async def an_office(
    folder: Path, keys: tuple[Any, ...] = (), pool: dict[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Turns]:
    """An engine, a gateway and a batch process, ready."""
    turns = Turns()
    async with turns.engine:
        declaration = declare({"p": remote_pool(turns.engine.url, **(pool or {}))}, **sections)
        async with RunningBatches(folder, declaration, keys) as turns.batches:
            await turns.batches.gateway.wait_ready()
            yield turns
