"""The official OpenAI client against the gateway and the real engine: what callers use, as they use it."""

import json
import time
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.fixtures.engine import RunningEngine
from tests.story.client.conftest import BackgroundGateway

pytestmark = pytest.mark.engine
ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
LONG: list[Any] = [{"role": "user", "content": "Count from one to two hundred in words."}]
ENDLESS: dict[str, Any] = {"ignore_eos": True}
"""Sent along, so that a small model that feels like stopping early cannot end the answer before the test does."""


@pytest.fixture
def client(real_gateway: BackgroundGateway):
    with OpenAI(base_url=real_gateway.base_url, api_key=real_gateway.key, max_retries=0) as client:
        yield client


def with_key(gateway: BackgroundGateway, key: str) -> OpenAI:
    return OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)


def test_chat(client: OpenAI) -> None:
    """A whole answer has text, a finish and usage."""
    answer = client.chat.completions.create(model="chat", messages=ASK, max_tokens=16, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_what_the_whole_answer_says(client: OpenAI) -> None:
    """Streamed pieces joined are the whole answer; no usage is shown unasked."""
    whole = client.chat.completions.create(model="chat", messages=ASK, max_tokens=12, temperature=0)
    chunks = list(client.chat.completions.create(model="chat", messages=ASK, max_tokens=12, temperature=0, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason is not None


def test_a_stream_with_usage_counts_as_the_engine_does(client: OpenAI) -> None:
    """`include_usage` gives one last chunk with the engine's own count."""
    whole = client.chat.completions.create(model="chat", messages=ASK, max_tokens=8, temperature=0)
    chunks = list(
        client.chat.completions.create(
            model="chat", messages=ASK, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
        )
    )
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_json_schema_output_is_enforced(client: OpenAI) -> None:
    """The engine's grammar binds the answer to the schema."""
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]}
    answer = client.chat.completions.create(
        model="chat", messages=ASK, max_tokens=40, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}},
    )  # fmt: skip
    assert list(json.loads(answer.choices[0].message.content or "")) == ["city"]


def test_completions(client: OpenAI) -> None:
    """The older text API, whole and streamed."""
    whole = client.completions.create(model="chat", prompt="Paris is the capital of", max_tokens=4, temperature=0)
    chunks = client.completions.create(
        model="chat", prompt="Paris is the capital of", max_tokens=4, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_embeddings(client: OpenAI) -> None:
    """A second pool of the same model serves embeddings."""
    answer = client.embeddings.create(model="embed", input=["water mill", "headrace"])
    assert len(answer.data) == 2
    assert len(answer.data[0].embedding) == 576
    assert answer.usage.prompt_tokens > 0


def test_responses(client: OpenAI) -> None:
    """The Responses API, where the engine has it."""
    answer = client.responses.create(model="chat", input="Say hello.", max_output_tokens=8)
    assert answer.output_text
    types = [
        event.type for event in client.responses.create(model="chat", input="Hi", max_output_tokens=4, stream=True)
    ]
    assert types[-1] == "response.completed"


def test_models(client: OpenAI, real_gateway: BackgroundGateway) -> None:
    """Each caller lists what it may use."""
    assert sorted(model.id for model in client.models.list()) == ["chat", "embed", "nowhere", "tools"]
    with with_key(real_gateway, real_gateway.narrow_key) as narrow:
        assert [model.id for model in narrow.models.list()] == ["embed"]


def test_one_model_is_retrieved_by_name(client: OpenAI) -> None:
    """The one that exists; another is not found."""
    assert client.models.retrieve("chat").id == "chat"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_messages(client: OpenAI) -> None:
    """Anthropic's API, where the engine has it, through the client's raw call."""
    body = {"model": "chat", "messages": ASK, "max_tokens": 4}
    answer: Any = client.post("/messages", body=body, cast_to=object)
    assert answer["type"] == "message"
    assert answer["usage"]["output_tokens"] == 4


def test_usage_is_the_engines_own_count(client: OpenAI, embedded_engine: RunningEngine) -> None:
    """Asked through the gateway or directly, the same tokens are counted."""
    with OpenAI(base_url=f"{embedded_engine.url}/v1", api_key="none", max_retries=0) as direct:
        counts = [
            by.chat.completions.create(model="chat", messages=ASK, max_tokens=6, temperature=0).usage
            for by in (direct, client)
        ]
    assert counts[0] is not None
    assert counts[1] is not None
    assert counts[0].prompt_tokens == counts[1].prompt_tokens
    assert counts[0].completion_tokens == counts[1].completion_tokens


def test_a_field_sent_twice_is_a_bad_request(client: OpenAI) -> None:
    """A body that parsers would read differently is refused, here sent as raw bytes."""
    body = b'{"model":"chat","messages":[],"max_tokens":1,"max_tokens":900}'
    answer = httpx.post(
        f"{client.base_url}chat/completions", content=body, headers={"authorization": f"Bearer {client.api_key}"}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"


def test_leaving_a_stream_frees_the_engine(
    client: OpenAI, embedded_engine: RunningEngine, real_gateway: BackgroundGateway
) -> None:
    """Closing a stream stops the generation: no slot is busy a moment later, and nothing is in flight."""
    stream = client.chat.completions.create(
        model="chat", messages=LONG, max_tokens=1500, stream=True, extra_body=ENDLESS
    )
    next(iter(stream))
    stream.close()
    real_gateway.idle()
    deadline_mono_s = time.monotonic() + 5
    while embedded_engine.busy_slots():
        assert time.monotonic() < deadline_mono_s
        time.sleep(0.1)


def test_a_clients_own_timeout_ends_the_request(client: OpenAI, real_gateway: BackgroundGateway) -> None:
    """A client that gives up is a disconnect: in-flight returns to zero."""
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="chat", messages=LONG, max_tokens=1500, timeout=0.3, extra_body=ENDLESS)
    real_gateway.idle()


async def test_the_asynchronous_client(real_gateway: BackgroundGateway) -> None:
    """Chat and stream through asyncio."""
    async with AsyncOpenAI(base_url=real_gateway.base_url, api_key=real_gateway.key, max_retries=0) as client:
        answer = await client.chat.completions.create(model="chat", messages=ASK, max_tokens=8, temperature=0)
        stream = await client.chat.completions.create(
            model="chat", messages=ASK, max_tokens=8, temperature=0, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text == answer.choices[0].message.content


def test_each_error_class_of_the_client(client: OpenAI, real_gateway: BackgroundGateway) -> None:
    """Status and shape make the client raise what its users catch, with our code."""

    def code_of(error: type[openai.APIStatusError], by: OpenAI, **fields: Any) -> str | None:
        with pytest.raises(error) as raised:
            by.chat.completions.create(**{"model": "chat", "messages": ASK, "max_tokens": 4, **fields})
        return raised.value.code

    with with_key(real_gateway, "hr-wrong") as wrong:
        assert code_of(openai.AuthenticationError, wrong) == "unauthenticated"
    with with_key(real_gateway, real_gateway.admin_key) as admin:
        assert code_of(openai.PermissionDeniedError, admin) == "forbidden"
    with with_key(real_gateway, real_gateway.limited_key) as limited:
        assert code_of(openai.RateLimitError, limited) == "rate_limited"
    assert code_of(openai.NotFoundError, client, model="none") == "model_not_found"
    assert code_of(openai.BadRequestError, client, extra_body={"id_slot": 1}) == "unsupported_parameter"
    assert code_of(openai.BadRequestError, client, extra_body={"n_predict": 9}) == "invalid_request"
    assert code_of(openai.InternalServerError, client, model="nowhere") == "no_ready_endpoint"


def test_an_overlong_prompt_names_both_numbers(client: OpenAI) -> None:
    """One code for every engine, with what was asked and what fits, streamed or not."""
    prompt: list[Any] = [{"role": "user", "content": "word " * 4000}]
    for is_stream in (False, True):
        with pytest.raises(openai.BadRequestError) as raised:
            client.chat.completions.create(model="chat", messages=prompt, max_tokens=4, stream=is_stream)
        assert raised.value.code == "context_too_long"
        assert "2048" in str(raised.value)


def test_no_gateway_is_a_connection_error() -> None:
    """Nobody listening is not an API error."""
    with OpenAI(base_url="http://127.0.0.1:9/v1", api_key="x", max_retries=0) as nobody:
        with pytest.raises(openai.APIConnectionError):
            nobody.models.list()
