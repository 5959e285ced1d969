"""One scripted engine and one real gateway worker per test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as running:
        yield running


@pytest_asyncio.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    pool = remote_pool(engine.url, stall_timeout_s=1.0, first_token_timeout_s=1.0, answer_timeout_s=2.0)
    async with RunningGateway(tmp_path, declare({"p": pool})) as running:
        await running.wait_ready()
        yield running
