"""One gateway worker in front of the real embedded engine and a real embeddings engine, for the whole folder."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fixtures.engine import RunningEngine
from tests.harness.running_gateway import RunningGateway, declare, new_key

MODELS = {"chat": {}, "embed": {}, "nowhere": {}, "tools": {}}


class BackgroundGateway:
    """A gateway driven by a loop of its own thread, so that the synchronous client can be used beside it."""

    def __init__(self, folder: Path, chat_url: str, embed_url: str, tools_url: str) -> None:
        self.admin_key, admin = new_key(scope="admin")
        self.narrow_key, narrow = new_key(allowed_models=("embed",))
        self.limited_key, limited = new_key("limited")
        declaration = declare(
            {
                "chat": {"model": "chat", "engine": "llamacpp", "endpoints": [chat_url]},
                "embed": {"model": "embed", "engine": "llamacpp", "endpoints": [embed_url], "embeddings": True},
                "tools": {"model": "tools", "engine": "llamacpp", "endpoints": [tools_url]},
                "nowhere": {"model": "nowhere", "engine": "llamacpp", "endpoints": ["http://127.0.0.1:9"]},
            },
            models=MODELS,
            tenants={"default": {}, "limited": {"limits": {"requests_per_min": 0}}},
        )
        self._gateway = RunningGateway(folder, declaration, keys=(admin, narrow, limited))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.key = self._gateway.key
        self.base_url = f"{self._gateway.url}/v1"

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def start(self) -> None:
        self.run(self._gateway.start())
        self.run(self._gateway.wait_ready(endpoints=3))

    def idle(self):
        return self.run(self._gateway.wait_idle())

    def stop(self) -> None:
        self.run(self._gateway.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def real_gateway(
    embedded_engine: RunningEngine,
    embedding_engine: RunningEngine,
    tools_engine: RunningEngine,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BackgroundGateway]:
    folder = tmp_path_factory.mktemp("gateway")
    gateway = BackgroundGateway(folder, embedded_engine.url, embedding_engine.url, tools_engine.url)
    gateway.start()
    yield gateway
    gateway.stop()
