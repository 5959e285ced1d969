"""Plans and keys change while requests run: nothing fails, and a plan that cannot be used changes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tests.harness.raw_client import RawClient, ask, chat, post
from tests.harness.running_gateway import RunningGateway, addresses_of, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine

from headrace.declaration.gateway_plan import GatewayPlan, compile_gateway_plan
from headrace.domain.worker import SetKeys


def compiled(gateway: RunningGateway, **changes: Any) -> GatewayPlan:
    """The plan in force, with changes."""
    gateway.revision += 1
    plan = compile_gateway_plan(gateway.declaration, addresses_of(gateway.declaration), revision=gateway.revision)
    return msgspec.structs.replace(plan, **changes)


async def test_fifty_plans_under_load_fail_no_request(tmp_path: Path, engine: ScriptedEngine) -> None:
    """Limits, headers and endpoints change again and again while callers ask on; each gets its whole answer."""
    async with ScriptedEngine() as second:
        pools = [
            {"p": remote_pool(engine.url)},
            {"p": remote_pool(engine.url, second.url)},
            {"p": remote_pool(engine.url, credentials={"bearer": "another"})},
        ]
        async with RunningGateway(tmp_path, declare(pools[0])) as gateway:
            await gateway.wait_ready()
            is_over = False
            bad: list[tuple[int, bytes]] = []
            count = 0

            async def call(*, is_stream: bool) -> None:
                nonlocal count
                async with RawClient(gateway.port) as client:
                    while not is_over:
                        await client.send(post(chat(stream=is_stream), gateway.key))
                        answer = await client.answer()
                        count += 1
                        if answer.status != 200 or (is_stream and b"data: [DONE]" not in answer.body):
                            bad.append((answer.status, answer.body[-200:]))

            callers = [asyncio.ensure_future(call(is_stream=number % 2 == 0)) for number in range(6)]
            for number in range(50):
                reply = await gateway.configure(
                    declare(pools[number % 3], gateway={"limits": {"in_flight": 100 + number}})
                )
                assert reply.ok, reply.message
                before = count
                async with asyncio.timeout(20):
                    while count < before + 3 and not bad:
                        await asyncio.sleep(0.005)
            is_over = True
            await asyncio.gather(*callers)
            status = await gateway.wait_idle()
    assert bad == []
    assert status.plan_revision == 51


async def test_an_unusable_plan_changes_nothing_and_says_why(gateway: RunningGateway) -> None:
    """A certificate that is not there and a header that would break HTTP are named; the old plan serves on."""
    await ask(gateway.port, post(chat(), gateway.key))
    before = await gateway.status()
    pool = compiled(gateway).pools[0]
    wrong = (
        {"tls_certificate": "/nowhere/cert.pem", "tls_key": "/nowhere/key.pem"},
        {"pools": (msgspec.structs.replace(pool, tls_ca="/nowhere/ca.pem", endpoints=(
            msgspec.structs.replace(pool.endpoints[0], url="https://127.0.0.1:1"),)),)},
        {"pools": (msgspec.structs.replace(pool, bearer="a\r\nx-evil: 1"),)},
    )  # fmt: skip
    for changes in wrong:
        reply = await gateway.configure_plan(compiled(gateway, **changes))
        assert not reply.ok
        assert reply.message
        assert "Traceback" not in reply.message
        assert "x-evil" not in reply.message
        after = await gateway.status()
        assert after.plan_revision == before.plan_revision
        assert [(e.endpoint, e.state, e.requests) for e in after.endpoints] == [
            (e.endpoint, e.state, e.requests) for e in before.endpoints
        ]
    assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200


async def test_a_revoked_key_is_refused_from_the_next_request_on(gateway: RunningGateway) -> None:
    """An open connection does not keep a revoked key alive."""
    async with RawClient(gateway.port) as client:
        await client.send(post(chat(), gateway.key))
        assert (await client.answer()).status == 200
        await gateway.command(SetKeys(keys=()))
        await client.send(post(chat(), gateway.key))
        assert (await client.answer()).code == "unauthenticated"
