"""A declared name that an engine does not take: seen before a caller pays for it, effective once it is corrected."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.harness.raw_client import ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import ScriptedEngine, Seen, completion, whole
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.domain.worker import EndpointStatus

REMEDY = "pools.p.served_model is 'wrong'; the engine lists"


def chat(model: str = "m") -> dict[str, Any]:
    return {"model": model, "max_tokens": 3, "messages": [{"role": "user", "content": "script:"}]}


async def one(gateway: RunningGateway) -> EndpointStatus:
    (endpoint,) = (await gateway.status()).endpoints
    return endpoint


async def seen_as(gateway: RunningGateway, reason: str) -> EndpointStatus:
    """Wait until the endpoint is shown with these words."""
    async with asyncio.timeout(60):
        while reason not in (endpoint := await one(gateway)).reason:
            await asyncio.sleep(0.02)
    return endpoint


def renamed(gateway: RunningGateway, served_model: str) -> Any:
    given = gateway.declaration.model_dump(mode="json", exclude_unset=True)
    given["pools"]["p"]["served_model"] = served_model
    return type(gateway.declaration).model_validate(given)


async def test_a_wrong_name_is_seen_without_a_request_and_corrected_by_a_reload(tmp_path: Path) -> None:
    """The endpoint is not ready, the reason names the key to correct, and the very next request is answered."""
    async with serving(simulated()) as (service, _):
        pool = remote_pool(f"http://127.0.0.1:{service.port}", engine="vllm", served_model="wrong")
        async with RunningGateway(tmp_path, declare({"p": pool})) as gateway:
            endpoint = await seen_as(gateway, REMEDY)
            assert endpoint.state == "not-ready"
            assert MODEL in endpoint.reason
            assert endpoint.requests == endpoint.failures == 0
            assert (await ask(gateway.port, post(chat(), gateway.key))).code == "no_ready_endpoint"
            assert (await gateway.configure(renamed(gateway, MODEL))).ok
            answer = await ask(gateway.port, post(chat(), gateway.key))
            assert answer.status == 200, answer.body
            assert (await gateway.configure(renamed(gateway, "wrong"))).ok
            await seen_as(gateway, REMEDY)
        log = gateway.log_path.read_text()
        assert "an endpoint is out of use" in log
        assert REMEDY in log
        assert "an endpoint is in use again" in log


class Choosy:
    """An engine that takes one name, and says so to nobody who only asks."""

    def __init__(self) -> None:
        self.takes = "right"

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        if request.json["model"] == self.takes:
            writer.write(whole(200, completion()))
        else:
            error = {"message": "The model does not exist", "code": "model_not_found"}
            writer.write(whole(404, json.dumps({"error": error}).encode()))
        await writer.drain()


async def test_a_name_that_a_request_found_wrong_is_corrected_by_a_reload(tmp_path: Path) -> None:
    """What the engine said of the old name is not held against the new one."""
    async with ScriptedEngine(otherwise=Choosy()) as engine:
        engine.pages = {"/health": b"{}"}
        async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, served_model="wrong")})) as gateway:
            await gateway.wait_ready()
            assert (await ask(gateway.port, post(chat(), gateway.key))).status in (502, 503)
            endpoint = await seen_as(gateway, "pools.p.served_model is 'wrong'")
            assert endpoint.state == "not-ready"
            assert (await gateway.configure(renamed(gateway, "right"))).ok
            assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200


async def test_an_engine_that_takes_names_it_does_not_list_is_used(tmp_path: Path) -> None:
    """Adapters are loaded when they are asked for, and many servers take any name: that is shown, and no more."""
    async with ScriptedEngine() as engine:
        engine.pages = {"/v1/models": b'{"data":[{"id":"base"}]}', "/health": b"{}"}
        for kind in ("vllm", "llamacpp", "openai"):
            pool = remote_pool(engine.url, engine=kind, served_model="adapter")
            async with RunningGateway(tmp_path / kind, declare({"p": pool})) as gateway:
                await gateway.wait_ready()
                assert "the engine lists base, and may take others" in (await one(gateway)).reason
                assert (await ask(gateway.port, post(chat(), gateway.key))).status == 200


async def test_an_engine_that_comes_back_with_another_model_is_asked_again(tmp_path: Path) -> None:
    """A restart under another name takes the endpoint out, and one under the declared name brings it back."""
    refuses = whole(404, b'{"error":{"message":"The model `m` does not exist.","code":404,"param":"model"}}')

    async def tokenize(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(refuses if request.path == "/tokenize" else whole(200, completion()))
        await writer.drain()

    async with ScriptedEngine(otherwise=tokenize) as engine:
        page = {"/health": b"{}"}
        engine.pages = {**page, "/v1/models": b'{"data":[{"id":"m"}]}'}
        async with RunningGateway(tmp_path, declare({"p": remote_pool(engine.url, engine="vllm")})) as gateway:
            await gateway.wait_ready()
            await engine.stop()
            await seen_as(gateway, "no connection")
            engine.pages = {**page, "/v1/models": b'{"data":[{"id":"other"}]}'}
            await engine.start()
            await seen_as(gateway, "the engine lists other")
            engine.pages = {**page, "/v1/models": b'{"data":[{"id":"m"}]}'}
            await gateway.wait_ready()


async def test_failures_that_take_no_endpoint_out_leave_a_line_with_the_reason(tmp_path: Path) -> None:
    """Whoever sees `failures 2` in the status finds out why; an endpoint that fails for ever does not fill the log."""

    async def fail(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(whole(500, b'{"error":{"message":"out of pages"}}'))
        await writer.drain()

    async with ScriptedEngine(otherwise=fail) as engine:
        pool = remote_pool(engine.url, probe={"eject_s": 600})
        async with RunningGateway(tmp_path, declare({"p": pool}, gateway={"retry": {"max_attempts": 1}})) as gateway:
            await gateway.wait_ready()
            for _ in range(20):
                assert (await ask(gateway.port, post(chat(), gateway.key))).status == 502
            assert (await one(gateway)).state == "ejected"
    lines = [line for line in gateway.log_path.read_text().splitlines() if "endpoint" in line]
    failed = [line for line in lines if "a request failed at an endpoint" in line]
    assert len(failed) >= 2
    assert all("status 500" in line for line in failed)
    assert len([line for line in lines if "an endpoint is out of use" in line]) == 1
    assert len(lines) <= 10
