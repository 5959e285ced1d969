"""Tool calls through the official client and the real engine, whose declared chat template has tools."""

import json
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from tests.captures.llamacpp.record import GREEDY, WEATHER_TOOL, tool_messages
from tests.fixtures.engine import RunningEngine
from tests.story.client.conftest import BackgroundGateway

pytestmark = pytest.mark.engine
ASK: dict[str, Any] = {
    "model": "tools",
    "messages": tool_messages(),
    "tools": [WEATHER_TOOL],
    "max_tokens": 80,
} | GREEDY
"""A conversation whose earlier calls the small model imitates."""
WANTED = ("get_weather", {"city": "Paris", "unit": "C"})


@pytest.fixture
def client(real_gateway: BackgroundGateway):
    with OpenAI(base_url=real_gateway.base_url, api_key=real_gateway.key, max_retries=0) as client:
        yield client


def call_in(answer: ChatCompletion) -> tuple[str, Any]:
    """Name and arguments of the one call in a whole answer."""
    assert answer.choices[0].finish_reason == "tool_calls"
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    return call.function.name, json.loads(call.function.arguments)


def call_of(chunks: list[ChatCompletionChunk]) -> tuple[str, Any]:
    """Name and arguments of the one call that a stream brought in pieces."""
    deltas = [call for chunk in chunks if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    functions = [delta.function for delta in deltas if delta.function is not None]
    assert len(functions) > 2, "in pieces"
    assert {delta.index for delta in deltas} == {0}
    assert [delta.id for delta in deltas if delta.id] == [deltas[0].id], "named once"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    name = "".join(function.name or "" for function in functions)
    return name, json.loads("".join(function.arguments or "" for function in functions))


def test_a_tool_call(client: OpenAI) -> None:
    """The engine's call arrives as the client's objects, with usage."""
    answer = client.chat.completions.create(**ASK)
    assert call_in(answer) == WANTED
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_a_tool_call_streamed(client: OpenAI) -> None:
    """Pieces of arguments joined are the whole call; usage only where asked for."""
    chunks = list(client.chat.completions.create(**ASK, stream=True))
    assert call_of(chunks) == WANTED
    assert all(chunk.usage is None for chunk in chunks)
    counted = list(client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    assert call_of(counted) == WANTED
    assert counted[-1].usage is not None
    assert counted[-1].usage.completion_tokens > 0


async def test_a_tool_call_of_the_asynchronous_client(real_gateway: BackgroundGateway) -> None:
    """Whole and streamed through asyncio."""
    async with AsyncOpenAI(base_url=real_gateway.base_url, api_key=real_gateway.key, max_retries=0) as client:
        assert call_in(await client.chat.completions.create(**ASK)) == WANTED
        stream = await client.chat.completions.create(**ASK, stream=True)
        assert call_of([chunk async for chunk in stream]) == WANTED


def test_a_tools_result_is_answered(client: OpenAI) -> None:
    """The turn after a call: the client's own message objects go back with the result, and text comes."""
    first = client.chat.completions.create(**ASK)
    [call] = first.choices[0].message.tool_calls or []
    result = {"role": "tool", "tool_call_id": call.id, "content": "ok"}
    messages = [*ASK["messages"], first.choices[0].message, result]
    answer = client.chat.completions.create(**(ASK | {"messages": messages}))
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content


def test_no_tools_asked_for_is_plain_text(client: OpenAI) -> None:
    """`tool_choice: none` reaches the engine as it was sent."""
    answer = client.chat.completions.create(**ASK, tool_choice="none")
    assert not answer.choices[0].message.tool_calls


def test_tool_calls_through_the_gateway_are_the_engines_own(client: OpenAI, tools_engine: RunningEngine) -> None:
    """Asked through the gateway or directly, the same call comes, counted the same."""
    with OpenAI(base_url=f"{tools_engine.url}/v1", api_key="none", max_retries=0) as direct:
        theirs = direct.chat.completions.create(**ASK)
    ours = client.chat.completions.create(**ASK)
    assert call_in(ours) == call_in(theirs)
    assert ours.usage is not None
    assert theirs.usage is not None
    assert ours.usage.completion_tokens == theirs.usage.completion_tokens
