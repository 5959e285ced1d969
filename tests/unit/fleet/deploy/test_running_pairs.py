"""Prefill and decode engines that run elsewhere, asked what they are before anything is started."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.harness.ports import free_port
from tests.harness.running_gateway import declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine
from tests.harness.simulated_engine import serving, simulated

from headrace.declaration.model import Declaration
from headrace.domain.routing_status import HandoverFit
from headrace.engines.simulated.config import DialectKind, Role
from headrace.fleet.deploy.running_pairs import running_pairs


def declared(engine: str, prefill: str, *decodes: str, **more: Any) -> Declaration:
    pools = {
        "p": remote_pool(prefill, engine=engine, disaggregation={"role": "prefill"}, **more),
        "d": remote_pool(*decodes, engine=engine, disaggregation={"role": "decode"}, **more),
    }
    return declare(pools)


async def look(declaration: Declaration) -> tuple[HandoverFit, ...]:
    """As a command does, outside the loop in which the engines run."""
    return await asyncio.to_thread(running_pairs, declaration)


async def test_engines_of_another_version_or_format_are_named() -> None:
    """What each says of itself is compared, settings on its page of metrics included."""
    async with AsyncExitStack() as stack:
        wanted: tuple[dict[str, Any], ...] = ({}, {}, {"version": "0.34.0"}, {"kv_cache_dtype": "fp8"})
        ports: list[int] = []
        for each in wanted:
            members: dict[str, Any] = {"version": "0.33.0", **each}
            service, _ = await stack.enter_async_context(serving(simulated(**members)))
            ports.append(service.port)
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        (found,) = await look(declared("vllm", *urls))
    assert (found.model, found.fits, found.unfit, found.not_measured) == ("m", 1, 2, 0)
    assert {(one.why, one.decodes) for one in found.mismatches} == {
        ("version is 0.33.0 at prefill and 0.34.0 at decode", (f"d/127.0.0.1:{ports[2]}",)),
        ("kv_dtype is auto at prefill and fp8 at decode", (f"d/127.0.0.1:{ports[3]}",)),
    }


async def test_roles_that_do_not_go_with_the_pools_are_named() -> None:
    """SGLang says with which half it was started."""
    config = simulated(DialectKind.SGLANG, role=Role.DECODE)
    async with serving(config) as (one, _), serving(config) as (two, _):
        (found,) = await look(declared("sglang", *(f"http://127.0.0.1:{each.port}" for each in (one, two))))
    assert found.is_hopeless
    assert found.mismatches[0].why == "role is decode at an engine whose pool has the role prefill"


@pytest.mark.parametrize("page", [b"[", b"null", b'{"version":1}', b"\xff"])
async def test_engines_that_do_not_say_what_they_are_are_not_measured(page: bytes) -> None:
    """Nobody listens, or what comes makes no sense: nothing speaks against the pair."""
    async with ScriptedEngine(pages={"/version": page, "/metrics": page}) as engine:
        (found,) = await look(declared("vllm", engine.url, f"http://127.0.0.1:{free_port()}"))
    assert (found.fits, found.unfit, found.not_measured) == (0, 0, 1)


async def test_credentials_are_shown_to_engines() -> None:
    """As the gateway shows them."""
    async with ScriptedEngine(pages={"/version": b'{"version":"1"}'}) as engine:
        await look(
            declared("vllm", engine.url, engine.url.replace("127.0.0.1", "localhost"), credentials={"bearer": "sesame"})
        )
        assert {headers.get("authorization") for _, headers in engine.asked} == {"Bearer sesame"}


def test_where_nothing_is_handed_over_nobody_is_asked() -> None:
    """Pools without roles, or that run here."""
    assert running_pairs(declare({"a": remote_pool("http://127.0.0.1:9", engine="vllm")})) == ()
