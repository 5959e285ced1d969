"""Every dialect says what it is, as the gateway asks: probes and readings of metrics before engines on real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from tests.harness.handover_parts import HandoverParts, half
from tests.harness.polling import until
from tests.harness.simulated_engine import DRIVERS, MODEL, serving, simulated
from tests.harness.told_engine import ToldEngine, says

from headrace.engines.kv_shape import KvShape
from headrace.engines.simulated.config import DialectKind, EngineConfig, Role
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load_reader import LoadReader
from headrace.gateway.endpoints.prober import Prober

NOWHERE = "http://127.0.0.1:9"
TOLD: dict[DialectKind, dict[str, Any]] = {
    DialectKind.VLLM: {"kv_dtype": "fp8", "block_tokens": 64},
    DialectKind.SGLANG: {"kv_dtype": "fp8", "block_tokens": 64, "tensor": 4, "pipeline": 2, "role": "prefill"},
    DialectKind.TENSORRT_LLM: {"kv_dtype": "fp8", "block_tokens": 64},
    DialectKind.LLAMACPP: {},
}
"""What each tells beside its version."""


def described(dialect: DialectKind, version: str) -> EngineConfig:
    config = simulated(dialect, version=version, kv_cache_dtype="fp8", tensor=4, pipeline=2, role=Role.PREFILL)
    block = 1 if dialect is DialectKind.LLAMACPP else 64  # its slots have none
    return replace(config, engine=replace(config.engine, kv=replace(config.engine.kv, block_tokens=block)))


@contextlib.asynccontextmanager
async def watched(dialect: DialectKind, url: str) -> AsyncGenerator[HandoverParts]:
    """A prefill engine at `url` and a decode engine that nobody answers for, probed and read."""
    kind = DRIVERS[dialect].value
    slots: dict[str, Any] = {"folder": "/nowhere"} if dialect is DialectKind.LLAMACPP else {}
    named = {"served_model": MODEL}
    parts = HandoverParts(
        {"p": half(kind, "prefill", url, pool=named, **slots), "d": half(kind, "decode", NOWHERE, **slots)}
    )
    tasks = [
        asyncio.create_task(each)  # noqa: TID251 # of the test
        for each in (Prober(parts.directory).run(), LoadReader(parts.directory, lambda _, __: None).run())
    ]
    try:
        yield parts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        parts.close()


@pytest.mark.parametrize("dialect", list(TOLD))
async def test_an_engine_says_what_it_is_and_what_it_is_after_a_restart(dialect: DialectKind) -> None:
    """Version, number format, blocks, ranks and role, as far as it has words for them; again after an outage."""
    kind = DRIVERS[dialect]
    async with (
        serving(described(dialect, "1.2.3")) as (service, _),
        watched(dialect, service_url(service.port)) as parts,
    ):
        expected = KvShape(engine=kind, version="1.2.3", **TOLD[dialect])
        await until(lambda: parts["p"].told_shape == expected, what=f"{expected}, not {parts['p'].told_shape}")
        assert parts["d"].told_shape is None
        service.config = service.dialect.config = described(dialect, "1.2.4")
        parts["p"].probe_said_not_ready("gone")
        newer = replace(expected, version="1.2.4")
        await until(lambda: parts["p"].told_shape == newer, what=f"{newer}, not {parts['p'].told_shape}")


def service_url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


BAD = {
    "hangs": b"",
    "is not there": b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
    "is a fault": b"HTTP/1.1 500 X\r\ncontent-length: 17\r\n\r\n" + b'{"version":"9.9"}',
    "is cut": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n" + b'{"version":"9',
    "is no HTTP": b"\x00\xff\r\n\r\n",
    "is no JSON": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[[[",
    "is endless": b"HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n" + b'{"version":"' + b"9" * 3_999_988,
    "is another thing": b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"version":7}',
}
"""What an engine may send where it is asked for its version."""


@contextlib.asynccontextmanager
async def probed(server: ToldEngine) -> AsyncGenerator[Endpoint]:
    async with server.running() as url, watched(DialectKind.VLLM, url) as parts:
        yield parts["p"]


GOOD = says("9.9")


def version_of(endpoint: Endpoint) -> str | None:
    return None if endpoint.told_shape is None else endpoint.told_shape.version


@pytest.mark.parametrize("what", list(BAD))
async def test_a_bad_reply_leaves_an_engine_unknown_and_in_use(what: str) -> None:
    """Whatever comes where it is asked what it is: it is ready, and not measured; then it tells, and is known."""
    server = ToldEngine(BAD[what])
    async with probed(server) as engine:
        engine.probe_said_not_ready("not probed yet")
        await until(lambda: server.asked and engine.is_usable, what="a probe that is judged")
        assert version_of(engine) is None
        server.reply = GOOD
        await until(lambda: version_of(engine) == "9.9", what="its version")


async def test_what_an_engine_said_is_forgotten_once_it_has_been_away() -> None:
    """What comes back after an outage may be another version, and does not say which."""
    server = ToldEngine(GOOD)
    async with probed(server) as engine:
        await until(lambda: version_of(engine) == "9.9", what="its version")
        server.reply = BAD["is a fault"]
        engine.probe_said_not_ready("gone")
        await until(lambda: engine.is_usable and version_of(engine) is None, what="nothing that is known")
