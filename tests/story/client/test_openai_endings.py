"""How streams end early, as the official client shows it: an engine killed mid-stream, a task cancelled mid-stream."""

import asyncio
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.fixtures.engine import RunningEngine, running_engine
from tests.harness.running_gateway import RunningGateway, declare
from tests.story.client.conftest import BackgroundGateway

pytestmark = pytest.mark.engine
LONG: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Count from one to two hundred in words."}],
    "max_tokens": 1500,
    "extra_body": {"ignore_eos": True},
}
"""An answer that is still being written when the test ends it."""
DEADLINE_S = 20.0


async def until_idle(engine: RunningEngine) -> None:
    """Wait until no slot of the engine works; asked so seldom that asking does not keep llama.cpp from noticing."""
    end_mono_s = time.monotonic() + DEADLINE_S
    while True:
        await asyncio.sleep(1.5)
        if not await asyncio.to_thread(engine.busy_slots):
            return
        assert time.monotonic() < end_mono_s, "the engine still generates"


async def test_an_engine_killed_mid_stream_raises_api_error(tmp_path: Path) -> None:
    """Both clients raise APIError with our code where a stream breaks: no silent end that looks like a whole answer."""
    with running_engine() as engine:
        pool = {"model": "chat", "engine": "llamacpp", "endpoints": [engine.url]}
        async with RunningGateway(tmp_path, declare({"p": pool}, models={"chat": {}})) as gateway:
            await gateway.wait_ready()
            access: dict[str, Any] = {"base_url": f"{gateway.url}/v1", "api_key": gateway.key, "max_retries": 0}
            with OpenAI(**access) as client:
                async with AsyncOpenAI(**access) as async_client:
                    stream = client.chat.completions.create(**LONG, stream=True)
                    async_stream = await async_client.chat.completions.create(**LONG, stream=True)
                    next(iter(stream))
                    await anext(aiter(async_stream))

                    engine.process.kill()

                    with pytest.raises(openai.APIError) as raised:
                        for _ in stream:
                            pass
                    assert raised.value.code == "stream_broken"
                    with pytest.raises(openai.APIError) as raised:
                        async for _ in async_stream:
                            pass
                    assert raised.value.code == "stream_broken"
                    assert not isinstance(raised.value, openai.APIConnectionError)
            assert (await gateway.wait_idle()).in_flight == 0


@pytest.mark.parametrize("is_stream", [True, False])
async def test_cancelling_the_task_frees_the_engine(
    is_stream: bool, real_gateway: BackgroundGateway, embedded_engine: RunningEngine
) -> None:
    """`task.cancel()` is a disconnect: nothing stays in flight, and the engine's slot is free a moment later."""
    has_begun = asyncio.Event()

    async def consume(client: AsyncOpenAI) -> None:
        if not is_stream:
            await client.chat.completions.create(**LONG)
            return
        async for _ in await client.chat.completions.create(**LONG, stream=True):
            has_begun.set()

    async with AsyncOpenAI(base_url=real_gateway.base_url, api_key=real_gateway.key, max_retries=0) as client:
        task = asyncio.ensure_future(consume(client))
        async with asyncio.timeout(DEADLINE_S):
            if is_stream:
                await has_begun.wait()
            while not await asyncio.to_thread(embedded_engine.busy_slots):
                await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        status = await asyncio.to_thread(real_gateway.idle)
        assert status.in_flight == 0
        await until_idle(embedded_engine)
