"""What one engine refuses because of what it is, and another would take: contexts that differ, APIs that it lacks."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.raw_client import RawAnswer, ask, post
from tests.harness.running_gateway import RunningGateway, declare, remote_pool
from tests.harness.scripted_engine import DONE, STREAM_HEAD, ScriptedEngine, Seen, framed, whole
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.domain.worker import ExplainRoute

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
BEST = {"models": {"big": {"quality": 0.5}, "small": {"quality": 0.9}}, "prefer": "best"}
TOO_LONG = (
    b'{"error":{"message":"This model\'s maximum context length is 4096 tokens. However, your prompt contains 5000 '
    b'input tokens","type":"BadRequestError","param":"input_tokens","code":400}}'
)


class Saying:
    """A script that answers whole with one status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = whole(status, body)

    async def __call__(self, engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(self.answer)
        await writer.drain()


async def refuse_in_stream(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """As SGLang does once its stream has begun."""
    error = b"data: " + TOO_LONG + b"\n\n"
    writer.write(STREAM_HEAD + framed(error) + framed(DONE) + b"0\r\n\r\n")
    await writer.drain()


def said(text: str = "hi", model: str = "auto", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


@asynccontextmanager
async def two_sizes(folder: Path, **sections: Any) -> AsyncGenerator[RunningGateway]:
    """Simulated vLLM engines of 32768 and 4096 tokens, each with a model of its own; `auto` stands for both."""
    async with AsyncExitStack() as stack:
        pools: dict[str, dict[str, Any]] = {}
        for name, context_tokens in (("big", 32_768), ("small", 4096)):
            service, _ = await stack.enter_async_context(serving(simulated(context_tokens=context_tokens)))
            url = f"http://127.0.0.1:{service.port}"
            pools[name] = remote_pool(url, model=name, engine="vllm", served_model=MODEL)
        models = {"big": {"context_tokens": 32_768}, "small": {"context_tokens": 4096}}
        declaration = declare(pools, models=models, auto_models={"auto": BEST}, **sections)
        async with RunningGateway(folder, declaration) as gateway:
            await gateway.wait_ready(endpoints=2)
            yield gateway


async def test_a_name_sends_no_prompt_to_a_model_that_cannot_hold_it(tmp_path: Path) -> None:
    """Long prompts, long answers and many bytes a token: whatever the larger model can take is answered by it."""
    async with two_sizes(tmp_path) as gateway:
        bodies: tuple[dict[str, Any], ...] = (
            said("x" * 16_384),
            said("x" * 60_000),
            said("hi", max_tokens=4097),
            said("hi", max_tokens=20_000, stop=["a"]),
            said("漢字仮名" * 3000),
            said("🙂" * 4000),
            said("a b c d e " * 1500, stream=True),
        )
        for body in bodies:
            answer = await ask(gateway.port, post({"max_tokens": 4, **body}, gateway.key))
            assert (answer.status, answer.headers.get("x-headrace-model")) == (200, "big"), (
                str(body)[:60],
                answer.body,
            )
        assert (await ask(gateway.port, post(said(max_tokens=4), gateway.key))).headers["x-headrace-model"] == "small"
        for body in (said("hi", max_tokens=1_000_000), said("x" * 400_000)):
            answer = await ask(gateway.port, post(body, gateway.key))
            assert (answer.status, answer.code) == (400, "context_too_long")
            assert answer.json["error"]["context_tokens"] == 32_768
        counted = [line for line in (await gateway.metrics()).splitlines() if line.startswith("headrace_model_choices")]
        assert sorted(counted) == [
            'headrace_model_choices_total{model="big",name="auto"} 9.0',
            'headrace_model_choices_total{model="small",name="auto"} 1.0',
        ]
        wish = ExplainRoute(body=json.dumps(said("x" * 60_000)), path=CHAT, tenant="default")
        reply = await gateway.command(wish)
        assert "its context holds 4096" in reply.text


@asynccontextmanager
async def scripted(
    folder: Path, pools: dict[str, dict[str, Any]], contexts: dict[str, int], **sections: Any
) -> AsyncGenerator[tuple[RunningGateway, dict[str, ScriptedEngine]]]:
    """One scripted engine for each pool; `contexts`: what it says of its own."""
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in pools}
        for name, tokens in contexts.items():
            row = {"id": "m", "max_model_len": tokens}
            engines[name].pages = {"/v1/models": json.dumps({"data": [row]}).encode(), "/health": b"{}"}
        declared = {name: remote_pool(engines[name].url, **keys) for name, keys in pools.items()}
        async with RunningGateway(folder, declare(declared, **sections)) as gateway:
            await gateway.wait_ready(endpoints=len(pools))
            yield gateway, engines


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_an_engine_finds_too_long_goes_to_a_longer_context(tmp_path: Path, is_stream: bool) -> None:
    """Within one model too: the estimate was too low, the engine has counted, and the caller never hears of it."""
    pools = {name: {"engine": "vllm"} for name in ("near", "like", "far")}
    contexts = {"near": 4096, "like": 4096, "far": 32_768}
    async with scripted(tmp_path, pools, contexts, models={"m": {"context_tokens": 4096}}) as (gateway, engines):
        for name in ("near", "like"):
            engines[name].scripts[""] = refuse_in_stream if is_stream else Saying(400, TOO_LONG)
        for _ in range(6):
            answer = await ask(gateway.port, post(said("script:", "m", stream=is_stream), gateway.key))
            assert answer.status == 200, answer.body
        assert len(engines["far"].seen) == 6
        assert len(engines["near"].seen) + len(engines["like"].seen) <= 6, "the like of it is not asked too"
        states = {one.pool: (one.state, one.failures) for one in (await gateway.status()).endpoints}
        assert set(states.values()) == {("ready", 0)}
        moved = len(engines["near"].seen) + len(engines["like"].seen)
        assert f'headrace_failovers_total{{code="context_too_long",model="m"}} {moved}.0' in await gateway.metrics()
        engines["far"].scripts[""] = Saying(400, TOO_LONG.replace(b"4096", b"32768"))
        answer = await ask(gateway.port, post(said("script:", "m", stream=is_stream), gateway.key))
        assert (answer.status, answer.code) == (400, "context_too_long")


async def test_the_pool_for_long_prompts_takes_what_the_other_finds_too_long(tmp_path: Path) -> None:
    """Pools that are declared for prompts of a length: the engine's count puts the request into the other."""
    pools = {
        "near": {"engine": "vllm", "accepts": {"max_input_tokens": 4000}},
        "far": {"engine": "vllm", "accepts": {"min_input_tokens": 4001}},
    }
    contexts = {"near": 4096, "far": 32_768}
    async with scripted(tmp_path, pools, contexts, models={"m": {}}) as (gateway, engines):
        engines["near"].scripts[""] = Saying(400, TOO_LONG)
        answer = await ask(gateway.port, post(said("script:", "m"), gateway.key))
        assert answer.status == 200, answer.body
        assert (len(engines["near"].seen), len(engines["far"].seen)) == (1, 1)


PATH_404 = {
    "vllm": b'{"detail":"Not Found"}',
    "sglang": b'{"detail":"Not Found"}',
    "tensorrt-llm": b'{"detail":"Not Found"}',
    "llamacpp": b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}',
    "openai": b'{"error":{"message":"Invalid URL (POST /v1/x)","type":"invalid_request_error","code":null}}',
}
PATHS = ("/v1/completions", EMBEDDINGS, "/v1/responses", "/v1/messages", CHAT)


def body_at(path: str) -> dict[str, Any]:
    text = "script:"
    own = {EMBEDDINGS: {"input": text}, "/v1/responses": {"input": text}, "/v1/completions": {"prompt": text}}
    return {"model": "m", "max_tokens": 3, **own.get(path, {"messages": [{"role": "user", "content": text}]})}


@pytest.mark.parametrize("kind", PATH_404)
async def test_a_caller_cannot_eject_engines_by_asking_for_an_api_that_they_lack(tmp_path: Path, kind: str) -> None:
    """Each such request is the caller's mistake: told as that, asked of one replica, and held against none."""
    pools = {"one": {"engine": kind}, "other": {"engine": kind}}
    async with scripted(tmp_path, pools, {}, models={"m": {}}) as (gateway, engines):
        for engine in engines.values():
            engine.scripts[""] = Saying(404, PATH_404[kind])
        asked = 0
        for path in PATHS:
            body = body_at(path)
            if path == EMBEDDINGS:
                del body["max_tokens"]
            for _ in range(4):
                answer = await ask(gateway.port, post(body, gateway.key, path))
                assert (answer.status, answer.code) == (404, "route_not_found"), (path, answer.body)
                assert "retry-after" not in answer.headers
            if kind == "tensorrt-llm" and path not in (CHAT, "/v1/completions", "/v1/responses"):
                continue  # known without asking it
            asked += 4
        assert sum(len(engine.seen) for engine in engines.values()) == asked
        assert {(one.state, one.failures) for one in (await gateway.status()).endpoints} == {("ready", 0)}
        for engine in engines.values():
            engine.scripts.clear()
        assert (await ask(gateway.port, post(said("script:", "m"), gateway.key))).status == 200


async def test_an_api_that_one_engine_lacks_is_answered_by_another(tmp_path: Path) -> None:
    """Where two kinds of engine serve a model, a request goes on to the kind that has the API."""
    pools = {"one": {"engine": "vllm"}, "other": {"engine": "llamacpp"}}
    async with scripted(tmp_path, pools, {}, models={"m": {}}) as (gateway, engines):
        engines["one"].scripts[""] = Saying(404, PATH_404["vllm"])
        for _ in range(4):
            answer = await ask(gateway.port, post({"model": "m", "input": "script:"}, gateway.key, EMBEDDINGS))
            assert answer.status == 200
        assert len(engines["other"].seen) == 4


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            "vllm",
            b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":"model","code":404}}',
        ),
        ("openai", b'{"error":{"message":"The model x does not exist","code":"model_not_found"}}'),
        ("openai", b'{"error":{"message":"model \\"x\\" not found, try pulling it first","type":"api_error"}}'),
    ],
)
async def test_an_engine_without_the_declared_model_gets_no_traffic_and_is_seen(
    tmp_path: Path, kind: str, body: bytes
) -> None:
    """The operator's mistake: one such answer moves all to the other replica, and the status says why."""
    pools = {"wrong": {"engine": kind, "probe": {"interval_s": 0.05}}, "right": {"engine": kind}}
    async with scripted(tmp_path, pools, {}, models={"m": {}}) as (gateway, engines):
        engines["wrong"].scripts[""] = Saying(404, body)
        for _ in range(6):
            assert (await ask(gateway.port, post(said("script:", "m"), gateway.key))).status == 200
        assert len(engines["wrong"].seen) <= 1
        async with asyncio.timeout(30):
            while not engines["wrong"].seen:
                await ask(gateway.port, post(said("script:", "m"), gateway.key))
        (wrong,) = [one for one in (await gateway.status()).endpoints if one.pool == "wrong"]
        assert wrong.state == "not-ready"
        assert "no model of the declared name" in wrong.reason


async def test_an_answer_that_the_engine_has_forgotten_is_no_failure_of_it(tmp_path: Path) -> None:
    """vLLM keeps earlier answers in memory: asking for one after it has restarted ejects nothing."""
    gone = b'{"error":{"message":"Response with id \'resp_1\' not found.","type":"invalid_request_error","code":404}}'
    async with scripted(tmp_path, {"p": {"engine": "vllm"}}, {}, models={"m": {}}) as (gateway, engines):
        engines["p"].scripts["begin"] = Saying(200, b'{"id":"resp_1","object":"response","output":[]}')
        engines["p"].scripts["go-on"] = Saying(404, gone)
        first = {"model": "m", "input": "script:begin"}
        assert (await ask(gateway.port, post(first, gateway.key, "/v1/responses"))).status == 200
        for _ in range(4):
            body = {"model": "m", "input": "script:go-on", "previous_response_id": "resp_1"}
            answer = await ask(gateway.port, post(body, gateway.key, "/v1/responses"))
            assert (answer.status, answer.code) == (400, "unsupported_parameter")
        assert [(one.state, one.failures) for one in (await gateway.status()).endpoints] == [("ready", 0)]


async def test_a_price_that_no_model_keeps_is_not_to_be_waited_for(tmp_path: Path) -> None:
    """The operator's limit is below every model's price: said with both numbers, and without a time to retry."""
    prices = {"models": {name: {"input_per_million": 5, "output_per_million": 9} for name in ("big", "small")}}
    async with two_sizes(tmp_path, prices=prices) as gateway:
        given = gateway.declaration.model_dump(mode="json", exclude_unset=True)
        given["auto_models"]["auto"]["max_price_per_million"] = 1
        reply = await gateway.configure(type(gateway.declaration).model_validate(given))
        assert reply.ok, reply.message
        answer: RawAnswer = await ask(gateway.port, post(said(), gateway.key))
        assert (answer.status, answer.code) == (403, "forbidden")
        assert "max_price_per_million" in answer.json["error"]["message"]
        assert "retry-after" not in answer.headers
        wish = ExplainRoute(body=json.dumps(said()), path=CHAT, tenant="default")
        assert "max_price_per_million" in (await gateway.command(wish)).text
