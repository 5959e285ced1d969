"""What happens where open files are few: callers are refused, and no engine is taken for dead."""

import asyncio
from pathlib import Path

import pytest
from tests.harness.polling import until
from tests.harness.raw_client import RawClient, chat, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole

LIMITED = """
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
runpy.run_module("headrace.gateway", run_name="__main__")
"""


async def hold(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """Answer once `engine.scripts` is emptied."""
    while engine.scripts:
        await asyncio.sleep(0.01)
    writer.write(whole(200, completion()))
    await writer.drain()


async def status_of(gateway: RunningGateway) -> int | None:
    """The status of one held request; None where the connection is closed without a word."""
    try:
        async with RawClient(gateway.port) as client:
            await client.send(post(chat("script:hold"), gateway.key))
            return (await client.answer()).status
    except (ConnectionError, asyncio.IncompleteReadError):
        return None


@pytest.mark.parametrize(("soft", "hard", "answered"), [(64, 1024, 40), (96, 96, 16)])
async def test_callers_are_bounded_by_open_files(
    tmp_path: Path, engine: ScriptedEngine, soft: int, hard: int, answered: int
) -> None:
    """Of 40 callers all are served where the system grants the files, else as many as there are files for, all 200."""
    engine.scripts = {"hold": hold}
    gateway = RunningGateway(tmp_path, declare({"p": remote_pool(engine.url)}))
    gateway.program = ("-c", LIMITED.format(soft=soft, hard=hard))
    async with gateway:
        await gateway.wait_ready()
        asked = [asyncio.ensure_future(status_of(gateway)) for _ in range(40)]

        async def all_there() -> bool:
            return engine.open_requests == answered and sum(task.done() for task in asked) == 40 - answered

        await until(all_there)
        assert (await gateway.status()).endpoints[0].state in ("ready", "busy")
        engine.scripts = {}
        statuses = [await task for task in asked]
        assert (statuses.count(200), statuses.count(None)) == (answered, 40 - answered)
