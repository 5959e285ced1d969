"""llama.cpp's dialect, on the real engine: its continuation row, what it ignores, and what headrace makes of both."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.contract.checks import Stream
from tests.fixtures.engine import RunningEngine
from tests.harness.running_gateway import RunningGateway, declare, remote_pool

from headrace.engines.llamacpp.continuation import CONTINUATION

pytestmark = pytest.mark.engine

QUESTION = {"role": "user", "content": "What is the capital of France?"}
BEGUN = "The capital of France"
REST = " is Paris."
"""How the bundled model goes on."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},
    "required": ["city"],
    "additionalProperties": False,
}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
CITY = r'\s*\{\s*"city"\s*:\s*"[^"]{0,12}"\s*\}\s*'


def begun(text: str = BEGUN) -> list[dict[str, str]]:
    return [QUESTION, {"role": "assistant", "content": text}]


async def ask_engine(engine: RunningEngine, path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    """A whole answer of the engine itself."""
    async with httpx.AsyncClient(base_url=engine.url, timeout=90) as client:
        response = await client.post(path, json={"temperature": 0, "max_tokens": 12, **body})
        assert response.status_code == 200, response.text
        return response.json()


async def stream_of(client: httpx.AsyncClient, path: str = "/v1/chat/completions", **body: Any) -> str:
    """The text of a stream, from whichever side."""
    body = {"temperature": 0, "max_tokens": 12, "stream": True, **body}
    async with client.stream("POST", path, json=body) as response:
        stream = Stream(response)
        await stream.read_all()
        if "chat" in path or "completions" in path:
            return stream.text
        return "".join(_piece(chunk) for chunk in stream.chunks)


def _piece(event: dict[str, Any]) -> str:
    delta = event.get("delta")
    if isinstance(delta, dict):
        return delta.get("text") or ""
    return delta if isinstance(delta, str) else ""


def text_of(answer: dict[str, Any]) -> str:
    if "choices" in answer:
        choice = answer["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]
    parts = answer.get("content") or answer["output"][-1]["content"]
    return parts[0]["text"]


@pytest.fixture
async def gateway(embedded_engine: RunningEngine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway in front of the engine."""
    pool = remote_pool(embedded_engine.url, engine="llamacpp", served_model=embedded_engine.model)
    async with RunningGateway(tmp_path, declare({"p": pool})) as running:
        await running.wait_ready()
        headers = {"authorization": f"Bearer {running.key}"}
        async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=90) as client:
            yield client


# --- the continuation row


async def test_a_whole_continuation_repeats_what_was_there(embedded_engine: RunningEngine) -> None:
    """Asked directly, llama.cpp gives old and new words: `whole_echoes`."""
    for asked in ({}, CONTINUATION.asked_with):
        assert text_of(await ask_engine(embedded_engine, messages=begun(), **asked)) == BEGUN + REST
    answer = await ask_engine(embedded_engine, "/v1/messages", messages=begun())
    assert text_of(answer) == BEGUN + REST


async def test_a_streamed_continuation_holds_new_words_alone(embedded_engine: RunningEngine) -> None:
    """Asked directly for a stream, it gives the new ones: `stream_echoes` is false."""
    async with httpx.AsyncClient(base_url=embedded_engine.url, timeout=90) as client:
        assert await stream_of(client, messages=begun()) == REST


async def test_a_schema_holds_for_old_and_new_words_together(embedded_engine: RunningEngine) -> None:
    """A JSON schema is replayed over what was there: `grammar_replays`."""
    old = '{"city": "'
    async with httpx.AsyncClient(base_url=embedded_engine.url, timeout=90) as client:
        new = await stream_of(client, messages=begun(old), response_format=SCHEMA_FORMAT, max_tokens=60)
    assert set(json.loads(old + new)) == {"city"}


async def test_a_continuation_counts_new_tokens_alone(embedded_engine: RunningEngine) -> None:
    """Usage and log-probabilities are of the new words: `counts_new_tokens`."""
    answer = await ask_engine(embedded_engine, messages=begun(), max_tokens=2, logprobs=True, top_logprobs=1)
    assert answer["usage"]["completion_tokens"] == 2
    assert [token["token"] for token in answer["choices"][0]["logprobs"]["content"]] == [" is", " Paris"]


async def test_stop_strings_are_looked_for_in_new_words_alone(embedded_engine: RunningEngine) -> None:
    """A stop string that was there already stops nothing: `stops_in_new_text`."""
    texts: list[str] = []
    for stop in ("capital", "Paris"):
        # a connection each: the engine may close an idle one just as it is used again
        async with httpx.AsyncClient(base_url=embedded_engine.url, timeout=90) as client:
            texts.append(await stream_of(client, messages=begun(), stop=[stop]))
    assert texts[0] == REST
    assert "Paris" not in texts[1]


async def test_white_space_before_the_seam_survives(embedded_engine: RunningEngine) -> None:
    """White space at the end of what was there is a part of the prompt: `keeps_white_space`."""
    prompts = [
        (await ask_engine(embedded_engine, messages=begun(text), max_tokens=1))["usage"]["prompt_tokens"]
        for text in (BEGUN, BEGUN + "\n\n")
    ]
    assert prompts[0] < prompts[1]


async def test_a_prompt_that_ends_with_old_words_is_gone_on_with(embedded_engine: RunningEngine) -> None:
    """At completions old words are a part of the prompt, and new ones alone are sent."""
    async with httpx.AsyncClient(base_url=embedded_engine.url, timeout=90) as client:
        assert (await stream_of(client, "/v1/completions", prompt=BEGUN, max_tokens=4)).startswith(REST)


@pytest.mark.parametrize("flags", [{}, {"continue_final_message": True}, dict(CONTINUATION.asked_with)])
async def test_callers_get_the_new_words_alone(gateway: httpx.AsyncClient, flags: dict[str, bool]) -> None:
    """Whole or streamed, flagged or not, a continuation through headrace says the same, on each API."""
    body = {"model": "m", "messages": begun(), "temperature": 0, **flags}
    assert text_of((await gateway.post("/v1/chat/completions", json=body)).json()) == REST
    assert await stream_of(gateway, model="m", messages=begun(), **flags) == REST
    if not flags:
        body = {"model": "m", "messages": begun(), "max_tokens": 12, "temperature": 0}
        assert text_of((await gateway.post("/v1/messages", json=body)).json()) == REST
        assert await stream_of(gateway, "/v1/messages", **body) == REST
        item: dict[str, Any] = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": BEGUN}],
        }
        body = {"model": "m", "input": [QUESTION, item], "max_output_tokens": 12, "temperature": 0}
        assert text_of((await gateway.post("/v1/responses", json=body)).json()) == REST


@pytest.mark.parametrize(
    "wish",
    [
        {"response_format": SCHEMA_FORMAT},
        {"reasoning_effort": "low"},
        {"messages": begun("")},
        {"messages": [QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "a"}] * 2}]},
    ],
)
async def test_what_the_row_does_not_hold_is_refused(gateway: httpx.AsyncClient, wish: dict[str, Any]) -> None:
    """A constraint on a continuation, reasoning, an empty or split beginning: refused, since it would go wrong."""
    body = {"model": "m", "messages": begun(), "continue_final_message": True, **wish}
    answer = await gateway.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter"), answer.text


# --- structured output

IGNORED: dict[str, tuple[str, dict[str, Any]]] = {
    "response_format at completions": ("/v1/completions", {"prompt": "A city:", "response_format": SCHEMA_FORMAT}),
    "text.format at responses": (
        "/v1/responses",
        {"input": "A city:", "text": {"format": {"type": "json_schema", "name": "city", "schema": SCHEMA}}},
    ),
    "output_config at messages": (
        "/v1/messages",
        {"messages": [QUESTION], "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "grammar at messages": ("/v1/messages", {"messages": [QUESTION], "grammar": 'root ::= "x"'}),
    "structured_outputs": ("/v1/chat/completions", {"messages": [QUESTION], "structured_outputs": {"json": SCHEMA}}),
    "guided_json": ("/v1/chat/completions", {"messages": [QUESTION], "guided_json": SCHEMA}),
}


@pytest.mark.parametrize("name", IGNORED)
async def test_llamacpp_ignores_other_words(embedded_engine: RunningEngine, name: str) -> None:
    """Why headrace may not pass them on: the engine answers 200 with free text."""
    path, fields = IGNORED[name]
    answer = await ask_engine(embedded_engine, path, **fields, max_output_tokens=30)
    assert not re.fullmatch(CITY, text_of(answer))


@pytest.mark.parametrize("name", IGNORED)
async def test_what_llamacpp_would_ignore_is_kept_to_or_refused(gateway: httpx.AsyncClient, name: str) -> None:
    """Through headrace the same request keeps to its schema, or is refused by name at /v1/messages."""
    path, fields = IGNORED[name]
    body = {"model": "m", "temperature": 0, "max_output_tokens" if "responses" in path else "max_tokens": 80, **fields}
    answer = await gateway.post(path, json=body)
    if path == "/v1/messages":
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
        assert "llamacpp holds output to nothing at /v1/messages" in error["message"]
    else:
        assert answer.status_code == 200, answer.text
        assert re.fullmatch(CITY, text_of(answer.json()))


KEPT: dict[str, tuple[dict[str, Any], str]] = {
    "choice": ({"structured_outputs": {"choice": ['say "a"', "b|c", "d\\e"]}}, r'say "a"|b\|c|d\\e'),
    "guided_choice": ({"guided_choice": ["up", "down"]}, "up|down"),
    "ebnf": ({"ebnf": 'root ::= word " " word\nword ::= "to" | "fro"'}, "(to|fro) (to|fro)"),
    "grammar": ({"grammar": 'root ::= ("ab" | [0-9]) "!"'}, "(ab|[0-9])!"),
    "json_schema": ({"json_schema": SCHEMA}, CITY),
    "json_schema as text": ({"json_schema": json.dumps(SCHEMA)}, CITY),
    "json object": ({"guided_json_object": True}, r"\s*\{.*"),
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
@pytest.mark.parametrize("name", KEPT)
async def test_any_dialect_is_kept_to(gateway: httpx.AsyncClient, name: str, path: str) -> None:
    """Callers' words, put into llama.cpp's, hold the real engine's answer on every path that has them."""
    fields, pattern = KEPT[name]
    limit = "max_output_tokens" if "responses" in path else "max_tokens"
    prompt = {"messages": [QUESTION]} if "chat" in path else {"prompt" if "completions" in path else "input": "Say: "}
    body = {"model": "m", "temperature": 0, limit: 80, **prompt, **fields}
    answer = await gateway.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert re.fullmatch(pattern, text_of(answer.json()), re.DOTALL)
