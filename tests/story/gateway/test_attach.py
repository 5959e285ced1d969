"""`headrace up --endpoint URL` against engines that already run, one of each kind: found out, governed, and asked."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.harness.raw_client import ask, chat, get, post
from tests.harness.running_gateway import RunningGateway
from tests.harness.scripted_engine import ScriptedEngine, whole

from headrace.domain.endpoint import EngineKind
from headrace.domain.operator_error import OperatorError
from headrace.wiring.declared import Source, ask_endpoint


def listing(owner: str, name: str, **more: object) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name, "owned_by": owner, **more}]}).encode()


ENGINES: Mapping[EngineKind, dict[str, bytes]] = {
    EngineKind.VLLM: {
        "/v1/models": listing("vllm", "Qwen/Qwen3-8B", max_model_len=4096),
        "/version": b'{"version":"0.33.0"}',
        "/health": b"",
    },
    EngineKind.SGLANG: {
        "/v1/models": listing("sglang", "/models/qwen3-8b", max_model_len=4096),
        "/server_info": b'{"tokenizer_path":"m","disaggregation_mode":"null","version":"0.5.23"}',
        "/health": b"",
    },
    EngineKind.TENSORRT_LLM: {"/v1/models": listing("tensorrt_llm", "qwen3-8b"), "/health": b""},
    EngineKind.LLAMACPP: {
        "/v1/models": listing("llamacpp", "qwen3-8b", meta={"n_ctx": 4096}),
        "/props": b'{"total_slots":4}',
        "/health": b'{"status":"ok"}',
    },
    EngineKind.OPENAI: {"/v1/models": listing("somebody", "qwen3-8b")},
}
"""What each kind of engine says of itself. Source: captures of the engines, and their sources for TensorRT-LLM."""
CALLED = {EngineKind.VLLM: "Qwen/Qwen3-8B"}


async def attach(url: str) -> Source:
    """Ask as `headrace up --endpoint` does, which is not on an event loop."""
    return await asyncio.to_thread(ask_endpoint, Source(endpoint=url))


@pytest.mark.parametrize("kind", ENGINES)
async def test_an_engine_that_runs_is_found_out_and_served(kind: EngineKind, tmp_path: Path) -> None:
    """Kind, model and context are asked for; requests then reach it by the name it knows, with our headers only."""
    async with ScriptedEngine(pages=ENGINES[kind]) as engine:
        source = await attach(f"{engine.url}/v1")
        assert source.engine is kind
        declaration = source.loader({})().declaration
        [(name, model)] = declaration.models.items()
        assert name == CALLED.get(kind, "qwen3-8b")
        if kind not in (EngineKind.TENSORRT_LLM, EngineKind.OPENAI):
            assert model.context_tokens == 4096
        async with RunningGateway(tmp_path, declaration) as gateway:
            await gateway.wait_ready()
            listed = (await ask(gateway.port, get("/v1/models", gateway.key))).json
            answer = await ask(gateway.port, post(chat(model=name), gateway.key))
        assert [one["id"] for one in listed["data"]] == [name]
        assert answer.status == 200
        [seen] = engine.seen
        assert seen.json["model"] == json.loads(ENGINES[kind]["/v1/models"])["data"][0]["id"]
        assert "authorization" not in seen.headers, "the caller's key stays here"
        assert seen.headers["user-agent"] == "headrace"
        assert all("authorization" not in headers for _, headers in engine.asked)


async def test_the_arguments_of_a_successor_say_the_same(tmp_path: Path) -> None:
    """What was found out is handed on to the background process and to an upgrade: nobody asks again."""
    async with ScriptedEngine(pages=ENGINES[EngineKind.VLLM]) as engine:
        source = await attach(engine.url)
        words = source.arguments()
        assert words == [
            "--endpoint", engine.url, "--engine", "vllm", "--served-model", "Qwen/Qwen3-8B", "--context-tokens", "4096",
        ]  # fmt: skip
        asked = len(engine.asked)
        assert await asyncio.to_thread(ask_endpoint, source) is source
        assert len(engine.asked) == asked


async def test_an_engine_that_wants_credentials_is_said_so(tmp_path: Path) -> None:
    """401 is not "nothing answers there": the message says where credentials are declared."""

    async def locked() -> bytes:
        return whole(401, b'{"error":"Unauthorized"}')

    async with ScriptedEngine(probe=locked) as engine:
        with pytest.raises(OperatorError, match="wants credentials") as raised:
            await attach(engine.url)
    assert "credentials" in (raised.value.hint or "")


async def test_an_engine_that_still_loads_is_served_once_it_is_ready(tmp_path: Path) -> None:
    """llama.cpp answers 503 while it loads: it is attached to, and not ready until it is."""
    is_loading = True

    async def page() -> bytes:
        if is_loading:
            return whole(503, b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}')
        return whole(200, ENGINES[EngineKind.LLAMACPP]["/v1/models"])

    async with ScriptedEngine(probe=page) as engine:
        declaration = (await attach(engine.url)).loader({})().declaration
        async with RunningGateway(tmp_path, declaration) as gateway:
            [name] = declaration.models
            assert (await ask(gateway.port, post(chat(model=name), gateway.key))).code == "no_ready_endpoint"
            is_loading = False
            await gateway.wait_ready()
            assert (await ask(gateway.port, post(chat(model=name), gateway.key))).status == 200


async def test_nothing_there_says_what_to_check() -> None:
    """A URL at which nobody listens is named, with what to look at."""
    with pytest.raises(OperatorError, match=r"no engine answers at http://127\.0\.0\.1:9"):
        await attach("http://127.0.0.1:9")
