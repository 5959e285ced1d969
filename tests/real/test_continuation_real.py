"""Facts of `engines/*/continuation.py`, each shown on the real engine, asked without a gateway in between."""

import json
from typing import Any

import httpx
import pytest
from tests.contract.checks import CITY_SCHEMA
from tests.real.serving import RealEngine

from headrace.domain.endpoint import EngineKind

pytestmark = pytest.mark.timeout(900)

QUESTION = {"role": "user", "content": "What is the capital of France?"}
BEGUN = "The capital of"


def continued(engine: RealEngine, begun: str = BEGUN, *, is_asked: bool = True, **fields: Any) -> dict[str, Any]:
    """The first choice, with `usage`, of an answer that goes on with `begun`."""
    asked = {"continue_final_message": True, "add_generation_prompt": False} if is_asked else {}
    if engine.kind is EngineKind.SGLANG:
        asked.pop("add_generation_prompt", None)
    body = {
        "model": engine.served_model,
        "messages": [QUESTION, {"role": "assistant", "content": begun}],
        "temperature": 0,
        "max_tokens": 12,
        **asked,
        **fields,
    }
    response = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=180)
    assert response.status_code == 200, response.text
    if fields.get("stream"):
        lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
        deltas = [json.loads(line)["choices"][0]["delta"] for line in lines if line != "[DONE]"]
        return {"text": "".join(delta.get("content") or "" for delta in deltas)}
    answer = response.json()
    choice = answer["choices"][0]
    return {**choice, "text": choice["message"]["content"], "usage": answer["usage"], "answer": answer}


def test_a_whole_answer_has_the_new_words_alone(running: RealEngine) -> None:
    """What was there already is not repeated: `whole_echoes` is false."""
    assert continued(running)["text"] == " France is Paris."


def test_a_stream_has_the_new_words_alone(running: RealEngine) -> None:
    """`stream_echoes` is false."""
    assert continued(running, stream=True)["text"] == " France is Paris."


def test_new_tokens_alone_are_counted(running: RealEngine) -> None:
    """The number of output tokens and the log-probabilities are of the new words: `counts_new_tokens`."""
    found = continued(running, max_tokens=3, logprobs=True, top_logprobs=1)
    assert found["usage"]["completion_tokens"] == 3
    assert [entry["token"].strip() for entry in found["logprobs"]["content"]] == ["France", "is", "Paris"]


def test_token_ids_are_of_the_new_tokens_alone(running: RealEngine) -> None:
    """vLLM returns as many ids as it made tokens; SGLang ignores return_token_ids on this path."""
    found = continued(running, max_tokens=3, return_token_ids=True)
    if running.kind is EngineKind.VLLM:
        assert len(found["token_ids"]) == 3
    else:
        assert "token_ids" not in found


def test_stop_strings_are_looked_for_in_the_new_words(running: RealEngine) -> None:
    """A stop string in the words that were there does not end the answer; one in the new words does."""
    assert continued(running, stop=["capital"])["text"] == " France is Paris."
    assert continued(running, stop=["Paris"])["text"] == " France is "


def test_a_schema_begins_anew_in_the_new_words(running: RealEngine) -> None:
    """A constraint holds for the new words alone: `grammar_replays` is false, so that the two parts are no JSON."""
    begun = '{"city": "Par'
    schema = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY_SCHEMA}}
    text = continued(running, begun, response_format=schema, max_tokens=200)["text"]
    assert set(json.loads(text)) == set(CITY_SCHEMA["required"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(begun + text)


def test_a_last_assistant_message_is_not_continued_unasked(running: RealEngine) -> None:
    """vLLM begins another turn; SGLang takes the words for the user's: `trailing`."""
    asked, unasked = continued(running), continued(running, is_asked=False)
    if running.kind is EngineKind.VLLM:
        assert unasked["usage"]["prompt_tokens"] > asked["usage"]["prompt_tokens"]
        assert unasked["text"] != asked["text"]
    else:
        as_user = httpx.post(
            f"{running.url}/v1/chat/completions",
            json={
                "model": running.served_model,
                "messages": [QUESTION, {"role": "user", "content": BEGUN}],
                "temperature": 0,
                "max_tokens": 12,
            },
            timeout=180,
        ).json()
        assert unasked["text"] == as_user["choices"][0]["message"]["content"]


def test_a_prompt_of_token_ids_is_continued(running: RealEngine) -> None:
    """The completions API goes on from token ids as from their text."""
    path = "/tokenize" if running.kind is EngineKind.VLLM else "/v1/tokenize"
    text = "The capital of France is"
    asked = {"model": running.served_model, "prompt": text, "add_special_tokens": False}
    ids = httpx.post(running.url + path, json=asked, timeout=180).json()["tokens"]
    said = [
        httpx.post(
            f"{running.url}/v1/completions",
            json={"model": running.served_model, "prompt": prompt, "max_tokens": 5, "temperature": 0},
            timeout=180,
        ).json()
        for prompt in (text, ids)
    ]
    assert said[0]["choices"][0]["text"] == said[1]["choices"][0]["text"]
    assert said[1]["usage"]["prompt_tokens"] == len(ids) == 5
