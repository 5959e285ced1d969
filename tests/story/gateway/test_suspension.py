"""Callers that an operator has suspended: refused with a code of their own, what runs is finished."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.harness.raw_client import RawAnswer, ask, chat, post
from tests.harness.running_gateway import RunningGateway, declare, new_key, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole

from headrace.domain.worker import SetKeys

SLOW_S = 0.3


async def slowly(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(SLOW_S)
    writer.write(whole(200, completion()))
    await writer.drain()


def declared(engine: ScriptedEngine, suspended: str | None = None):
    """Three levels, one of them suspended."""
    sections = {
        "organisations": {"acme": {"suspended": suspended == "organisation"}},
        "tenants": {
            "default": {},
            "search": {
                "organisation": "acme",
                "suspended": suspended == "tenant",
                "projects": {"web": {"suspended": suspended == "project"}},
            },
        },
    }
    return declare({"p": remote_pool(engine.url)}, **sections)


LEVELS = {
    "organisation": "organisation 'acme' is suspended",
    "tenant": "tenant 'search' is suspended",
    "project": "project 'web' is suspended",
    "key": "is suspended",
}


async def test_whoever_is_suspended_is_told_so_and_by_which_level(engine: ScriptedEngine, tmp_path: Path) -> None:
    """403 `suspended`, not to be retried; others are served, and what was in work is finished."""
    engine.scripts = {"slow": slowly}
    key, record = new_key("search", project="web")
    async with RunningGateway(tmp_path, declared(engine), (record,)) as gateway:
        await gateway.wait_ready()

        async def call(text: str = "hi", sent: str = key) -> RawAnswer:
            return await ask(gateway.port, post(chat(text), sent))

        for level, words in LEVELS.items():
            before = len(engine.seen)
            running = asyncio.ensure_future(call("script:slow"))
            async with asyncio.timeout(30):
                while len(engine.seen) == before:
                    await asyncio.sleep(0.01)
            if level == "key":
                ended = msgspec.structs.replace(record, suspended_at=datetime.now(tz=UTC))
                await gateway.command(SetKeys(keys=(gateway.keys[0], ended)))
            else:
                assert (await gateway.configure(declared(engine, level))).ok
            refused = await call()
            assert (refused.status, refused.code) == (403, "suspended"), level
            assert words in refused.json["error"]["message"]
            assert refused.headers["x-should-retry"] == "false"
            assert (await call(sent=gateway.key)).status == 200
            assert (await running).status == 200
            assert (await gateway.configure(declared(engine))).ok
            await gateway.command(SetKeys(keys=gateway.keys))
            assert (await call()).status == 200
