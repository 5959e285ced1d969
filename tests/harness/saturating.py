"""Callers that ask again and again until a limit keeps all of them out, and an engine that counts what it was asked."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.harness.raw_client import RawAnswer, RawClient, chat, post
from tests.harness.running_gateway import RunningGateway
from tests.harness.scripted_engine import (
    DONE,
    STREAM_HEAD,
    ScriptedEngine,
    Seen,
    chunk_event,
    framed,
    usage_event,
    whole,
)

CALLERS = 200
REST_S = 0.6
"""Nobody has been let in for so long: the limit is used up."""
PAUSE_S = 0.15
"""Of a caller that was refused, before it asks again."""


def work(input_tokens: int = 100, output_tokens: int = 50, hold_s: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A request that `CountingEngine` counts as so many tokens; its text has about so many."""
    text = f"script:work in={input_tokens} out={output_tokens} hold={hold_s:g} "
    return chat(text + "word " * max(input_tokens - 15, 0), **fields)


@dataclass
class CountingEngine:
    """The script of requests made by `work`, and what it has seen."""

    input_tokens: int = 0
    output_tokens: int = 0
    answered: int = 0
    at_once: int = 0
    most_at_once: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Requests with hold=-1 wait for it."""

    def join(self, engine: ScriptedEngine) -> None:
        engine.scripts["work"] = self.answer

    async def answer(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        found = re.search(rb"in=(\d+) out=(\d+) hold=(-?[\d.]+)", request.body)
        assert found is not None
        input_tokens, output_tokens, hold_s = int(found[1]), int(found[2]), float(found[3])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if request.json.get("stream"):
                await self._stream(writer, input_tokens, output_tokens, hold_s)
            else:
                await self._wait(hold_s)
                usage = {"prompt_tokens": input_tokens, "completion_tokens": output_tokens}
                choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
                answer = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}
                writer.write(whole(200, json.dumps(answer).encode()))
            self.input_tokens += input_tokens
            self.output_tokens += output_tokens
            self.answered += 1
            await writer.drain()
        finally:
            self.at_once -= 1

    async def _wait(self, hold_s: float) -> None:
        if hold_s < 0:
            await self.release.wait()
        elif hold_s:
            await asyncio.sleep(hold_s)

    async def _stream(self, writer: asyncio.StreamWriter, input_tokens: int, output_tokens: int, hold_s: float) -> None:
        writer.write(STREAM_HEAD)
        for number in range(output_tokens):
            writer.write(framed(chunk_event(f"w{number} ")))
        await writer.drain()
        await self._wait(hold_s)
        ending = chunk_event(finish="stop") + usage_event(input_tokens, output_tokens, 0) + DONE
        writer.write(framed(ending) + b"0\r\n\r\n")


async def saturate(
    gateway: RunningGateway,
    key: str,
    body: dict[str, Any],
    *,
    callers: int = CALLERS,
    most: int = 10**9,
    **headers: str,
) -> list[RawAnswer]:
    """All callers ask until nobody has been let in for REST_S, or `most` answers have come; the good answers."""
    loop = asyncio.get_running_loop()
    good: list[RawAnswer] = []
    last_s = loop.time()
    raw = post(body, key, **headers)

    async def call() -> None:
        nonlocal last_s
        async with RawClient(gateway.port) as client:
            while loop.time() - last_s < REST_S and len(good) < most:
                await client.send(raw)
                answer = await client.answer()
                if answer.status == 200:
                    good.append(answer)
                    last_s = loop.time()
                else:
                    assert answer.status == 429, answer
                    await asyncio.sleep(PAUSE_S)

    async with asyncio.timeout(60):
        await asyncio.gather(*(call() for _ in range(callers)))
    return good
