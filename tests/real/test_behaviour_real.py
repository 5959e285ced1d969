"""What headrace relies on in both engines beyond the contract: usage, owned fields, constraints, tools, tokens."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.captures.llamacpp.record import WEATHER_TOOL, tool_messages
from tests.contract.checks import CITY_SCHEMA, Stand, until
from tests.fixtures.engine import RunningEngine
from tests.real.figures import FIGURES
from tests.real.serving import RealEngine

from headrace.domain.endpoint import EngineKind
from headrace.domain.errors import ErrorCode
from headrace.engines.contract import FieldRule

pytestmark = pytest.mark.timeout(900)

LONG_QUESTION = "Here is a list of words: " + " ".join(f"word{number}" for number in range(60)) + ". Say it again."


def is_object(text: str) -> bool:
    return isinstance(parsed(text), dict)


def is_city(text: str) -> bool:
    made = parsed(text)
    return isinstance(made, dict) and set(made) == set(CITY_SCHEMA["required"])


def parsed(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


PHONE = "[0-9]{3}-[0-9]{2}"
YES_OR_NO = 'root ::= "yes" | "no"'
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY_SCHEMA}}
CONSTRAINTS: dict[str, tuple[dict[str, Any], Callable[[str], bool]]] = {
    "openai_json_object": ({"response_format": {"type": "json_object"}}, is_object),
    "openai_json_schema": ({"response_format": SCHEMA_FORMAT}, is_city),
    "vllm_json": ({"structured_outputs": {"json": CITY_SCHEMA}}, is_city),
    "vllm_regex": ({"structured_outputs": {"regex": PHONE}}, matches(PHONE)),
    "vllm_choice": ({"structured_outputs": {"choice": ["red (warm)", "blue"]}}, matches(r"red \(warm\)|blue")),
    "vllm_grammar": ({"structured_outputs": {"grammar": YES_OR_NO}}, matches("yes|no")),
    "sglang_regex": ({"regex": PHONE}, matches(PHONE)),
    "sglang_ebnf": ({"ebnf": YES_OR_NO}, matches("yes|no")),
    "llamacpp_json_schema": ({"json_schema": CITY_SCHEMA}, is_city),
    "llamacpp_grammar": ({"grammar": YES_OR_NO}, matches("yes|no")),
}
"""A constraint in each dialect that headrace takes, and what its output must be on whatever engine."""

OLD_NAMES: dict[str, tuple[Any, Callable[[str], bool]]] = {
    "guided_choice": (["yes", "no"], matches("yes|no")),
    "guided_regex": (PHONE, matches(PHONE)),
    "guided_json": (CITY_SCHEMA, is_city),
}
"""vLLM's names until 0.11: it and SGLang ignore them now, and answer without any constraint."""


@pytest.mark.parametrize("name", CONSTRAINTS)
async def test_a_constraint_is_kept_in_whatever_dialect_it_is_written(stand: Stand, name: str) -> None:
    """Callers may write the constraint as another engine takes it: the output keeps to it, streamed or not."""
    fields, keeps_to = CONSTRAINTS[name]
    whole = await stand.ask(**fields, max_tokens=160)
    assert whole.status_code == 200, whole.text
    assert keeps_to(whole.json()["choices"][0]["message"]["content"]), whole.text
    stream = await stand.stream(**fields, max_tokens=160)
    assert stream.is_success, stream.payloads
    assert keeps_to(stream.text), stream.text


@pytest.mark.parametrize("name", OLD_NAMES)
async def test_a_constraint_that_the_engine_would_ignore_is_not_ignored(stand: Stand, name: str) -> None:
    """Nobody gets an answer without the constraint that was asked for: headrace says it in the engine's words."""
    value, keeps_to = OLD_NAMES[name]
    direct = {"model": stand.engine.served_model, "messages": [{"role": "user", "content": "Say hello."}]}
    async with httpx.AsyncClient(base_url=stand.engine.url, timeout=180) as client:
        ignored = await client.post("/v1/chat/completions", json={**direct, "max_tokens": 160, name: value})
    assert not keeps_to(ignored.json()["choices"][0]["message"]["content"]), "the engine took it: let the driver use it"
    answer = await stand.ask(**{name: value}, max_tokens=160)
    assert answer.status_code == 200, answer.text
    assert keeps_to(answer.json()["choices"][0]["message"]["content"])


async def test_no_owned_field_reaches_the_engine(stand: Stand, real_engine: RealEngine) -> None:
    """Each field that only the gateway may set is refused by name, and the engine lives on."""
    owned = [name for name, rule in real_engine.driver.dialect.fields.items() if rule is FieldRule.OWNED]
    assert len(owned) > 5
    for name in owned:
        response = await stand.ask(**{name: {"do_remote_prefill": True}}, max_tokens=1)
        assert response.status_code == 400, f"{name}: {response.text}"
        assert name in response.json()["error"]["message"]
    assert (await stand.ask(max_tokens=1)).status_code == 200


async def test_a_repeated_prompt_is_counted_as_cached(stand: Stand) -> None:
    """What came from the engine's prefix cache is in the caller's usage, streamed or not."""
    messages = [{"role": "user", "content": LONG_QUESTION}]
    first = (await stand.ask(messages=messages, max_tokens=1)).json()["usage"]
    again = (await stand.ask(messages=messages, max_tokens=1)).json()["usage"]
    stream = await stand.stream(messages=messages, max_tokens=1, stream_options={"include_usage": True})
    assert first["prompt_tokens"] == again["prompt_tokens"] > 150
    for usage in (again, stream.usages[-1]):
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert 0.7 * usage["prompt_tokens"] < cached < usage["prompt_tokens"]


async def test_a_model_that_nobody_declared_is_refused_before_the_engine(stand: Stand) -> None:
    """SGLang would answer to any name: the gateway does not ask it."""
    response = await stand.client.post(
        "/v1/chat/completions", json={"model": "nope", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert response.status_code == 404
    assert response.json()["error"]["code"] == ErrorCode.MODEL_NOT_FOUND


async def test_tools_are_called(stand: Stand) -> None:
    """A tool call comes as the API has it, whole or in pieces that add up, and says that a call ended the answer."""
    body = {"messages": tool_messages(), "tools": [WEATHER_TOOL], "max_tokens": 120}
    choice = (await stand.ask(**body)).json()["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    wanted = json.loads(call["function"]["arguments"])
    assert set(wanted) == {"city", "unit"}
    stream = await stand.stream(**body)
    deltas = [choice["delta"] for chunk in stream.chunks for choice in chunk["choices"]]
    pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls") or []]
    assert "".join(piece.get("name") or "" for piece in pieces) == "get_weather"
    assert json.loads("".join(piece.get("arguments") or "" for piece in pieces)) == wanted
    assert stream.finish_reasons == ["tool_calls"]


async def test_the_request_has_one_id_everywhere(stand: Stand) -> None:
    """The id that the gateway answers with is in the one under which the engine worked, where the engine takes it."""
    response = await stand.ask(max_tokens=2)
    request_id = response.headers["x-request-id"]
    assert request_id.startswith("req_")
    if stand.engine.kind is EngineKind.VLLM:
        assert request_id.removeprefix("req_") in response.json()["id"]


async def test_an_abort_frees_the_engine_within_a_second(stand: Stand, real_engine: RealEngine) -> None:
    """How long the engine works on for a caller that left a stream is measured on the engine's own load."""
    async with stand.open_stream(max_tokens=1000, ignore_eos=True) as stream:
        await stream.read_until_content()
        await until(lambda: is_working(real_engine), 15, "the engine shows the stream")
    left_mono_s = time.monotonic()
    await until(lambda: is_at_rest(real_engine), 15, "the engine is at rest")
    FIGURES.add("abort_s", time.monotonic() - left_mono_s)


async def is_working(engine: RealEngine) -> bool:
    return await asyncio.to_thread(engine.live_requests) > 0


async def is_at_rest(engine: RealEngine) -> bool:
    return await asyncio.to_thread(engine.live_requests) == 0


@pytest.mark.parametrize("streams", [1, 4, 8])
async def test_speed_is_measured(stand: Stand, streams: int) -> None:
    """Tokens per second of one and several streams are told at the end of the run; nothing is asserted on them."""
    begun_mono_s = time.monotonic()
    usage = {"stream_options": {"include_usage": True}}
    asked = (stand.stream(max_tokens=64, ignore_eos=True, **usage) for _ in range(streams))
    done = await asyncio.gather(*asked)
    tokens = sum(stream.usages[-1]["completion_tokens"] for stream in done)
    assert tokens == 64 * streams
    FIGURES.add(f"tokens_per_s_{streams}_streams", tokens / (time.monotonic() - begun_mono_s))


TEXTS = [
    "Hello, world!",
    "In 2026 there were 1234567 of them, at 3.14 each.",
    "  leading and   inner   spaces\n\n\tand a tab",
    "naïve café, 你好 🌍, Ω≈ç",
    "<|im_start|>user\nspecial<|im_end|>",
    'def f(x):\n    return x**2  # it\'s "quoted"',
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_converted_model_reads_text_as_llama_cpp_does(
    running: RealEngine, embedded_engine: RunningEngine, text: str
) -> None:
    """The converted tokenizer gives the same tokens, so that prompts count the same on every engine."""
    asked = {"content": text, "add_special": False, "parse_special": True}
    expected = httpx.post(f"{embedded_engine.url}/tokenize", json=asked, timeout=30).json()["tokens"]
    path = "/tokenize" if running.kind is EngineKind.VLLM else "/v1/tokenize"
    body = {"model": running.served_model, "prompt": text, "add_special_tokens": False}
    answer = httpx.post(running.url + path, json=body, timeout=30).json()
    assert answer["tokens"] == expected


async def test_the_converted_model_still_knows_what_it_knew(stand: Stand) -> None:
    """The weights came over: a simple question has its answer."""
    answer = await stand.ask(messages=[{"role": "user", "content": "What is the capital of France?"}], max_tokens=12)
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
