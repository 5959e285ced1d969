"""The simulated engine's answers beside recordings of the real ones: the same questions, the same members and events.

What is compared is the shape: status, names and types of members, kinds of events. Texts and numbers are each engine's.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.harness.simulated_engine import serving, simulated

from headrace.engines.simulated.config import DialectKind

CAPTURES = Path(__file__).parents[1] / "captures"
FOLDERS = {DialectKind.VLLM: "vllm", DialectKind.SGLANG: "sglang", DialectKind.LLAMACPP: "llamacpp"}
NAMES = (
    "chat chat_json_schema chat_stream chat_stream_length chat_stream_usage chat_two_choices "
    "completion_stream_usage completion_token_ids error_context error_context_completion error_context_messages "
    "error_context_stream error_embeddings error_max_tokens error_model error_no_messages error_path error_schema "
    "error_temperature error_tools_empty error_type messages messages_stream responses responses_stream "
    "tool_choice_named"
).split()

INVENTED = frozenset(
    {
        *("timings", "usage.prompt_tokens_details", "metadata.weight_version"),
        *("content_index", "output_index", "sequence_number", "output", "logprobs", "usage.output_tokens_details"),
    }
)
"""Members that an answer may have although the recorded one has not: numbers of events and parts in the Responses API,
which llama.cpp leaves out, and counts."""

NOT_SIMULATED = frozenset(
    {
        "usage.prompt_tokens_details.created_cache_tokens",
        "metadata.weight_versions",
        # the Responses API repeats the request's settings
        *(f"response.{name}" for name in ("parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p")),
        *("parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background", "max_output_tokens"),
        *("service_tier", "truncation", "presence_penalty", "frequency_penalty", "store", "text", "reasoning"),
        *("metadata", "completed_at"),
        *("usage.input_tokens_details.cache_write_tokens", "usage.input_tokens_details.input_tokens_per_turn"),
        *("usage.input_tokens_details.cached_tokens_per_turn", "usage.output_tokens_details.tool_output_tokens"),
        *("usage.output_tokens_details.output_tokens_per_turn",),
        *("usage.output_tokens_details.tool_output_tokens_per_turn", "usage.cache_creation_input_tokens"),
        *("output[].phase", "item.phase", "message.usage.cache_read_input_tokens"),
        "choices[].message.tool_calls[].index",
    }
)
"""Members of real answers that the simulation leaves out: nobody reads them."""

CASES = [
    (dialect, name)
    for dialect, folder in FOLDERS.items()
    for name in NAMES
    if (CAPTURES / folder / f"{name}.response").exists() and (CAPTURES / folder / f"{name}.request.json").exists()
]


def members(value: Any, path: str = "") -> dict[str, str]:
    """Path of every member -> the kind of its value; members that are null are of kind null."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for name, inner in value.items():
            found |= members(inner, f"{path}.{name}" if path else name)
        return found or {path: "object"}
    if isinstance(value, list):
        found = {}
        for inner in value:
            found |= members(inner, f"{path}[]")
        return found or {path: "list"}
    kinds = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "text"}
    return {path: kinds[type(value)]}


def events(body: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ") and "[DONE]" not in line]


def kinds_of_events(body: str) -> list[str]:
    """The kinds of a stream's events, repeats left out: by name, or by what a chunk carries."""
    kinds: list[str] = []
    for event in events(body):
        kind = event.get("type") or _kind_of_chunk(event)
        if not kinds or kinds[-1] != kind:
            kinds.append(kind)
    return [*kinds, "[DONE]"] if "data: [DONE]" in body else kinds


def _kind_of_chunk(event: dict[str, Any]) -> str:
    if not event.get("choices"):
        return "usage" if "usage" in event else "error"
    choice = event["choices"][0]
    delta = choice.get("delta", {})
    parts = ["role"] if delta.get("role") else []
    parts += ["text"] if delta.get("content") or choice.get("text") else []
    return "+".join([*parts, *(["finish"] if choice.get("finish_reason") else [])]) or "empty"


def shape(body: str, *, is_stream: bool) -> dict[str, str]:
    """Members of all events together, or of the whole answer."""
    found: dict[str, str] = {}
    for document in events(body) if is_stream else [json.loads(body)]:
        for path, kind in members(document).items():
            if found.get(path, "null") == "null":
                found[path] = kind
    return found


def is_left_out(path: str, names: frozenset[str]) -> bool:
    bare = path.removeprefix("response.")
    return any(bare == name or bare.startswith((f"{name}.", f"{name}[]")) for name in names)


@pytest.mark.parametrize(("dialect", "name"), CASES, ids=[f"{dialect.value}-{name}" for dialect, name in CASES])
async def test_answers_have_the_shape_of_recorded_ones(dialect: DialectKind, name: str):
    """Status, content type, members and the order of events are those that the real engine gave."""
    folder = CAPTURES / FOLDERS[dialect]
    meta = json.loads((folder / f"{name}.meta.json").read_text())
    request = json.loads((folder / f"{name}.request.json").read_text())
    recorded = (folder / f"{name}.response").read_text()
    body = request["body"]
    if body == "word repeated 3000 times as the prompt":  # not recorded in full
        body = {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 4, "stream": "stream" in name}
    is_cut = any(mark in recorded for mark in ('"finish_reason":"length"', '"max_tokens"', "response.incomplete"))
    tokens = 500 if is_cut or '"status":"incomplete"' in recorded else 5
    async with serving(simulated(dialect, answer_tokens=(tokens, tokens))) as (service, client):
        if isinstance(body, dict) and body.get("model") not in (None, "nope"):
            body["model"] = service.config.served_model
        method = request.get("method", "POST")
        answer = await client.request(method, request["path"], json=body)
    assert answer.status_code == meta["status"], answer.text
    assert answer.headers.get("content-type", "").partition(";")[0] == meta["content_type"].partition(";")[0]
    is_stream = meta["content_type"].startswith("text/event-stream")
    ours, theirs = (shape(text, is_stream=is_stream) for text in (answer.text, recorded))
    if is_stream:
        assert kinds_of_events(answer.text) == kinds_of_events(recorded)
    said = {path for path, kind in ours.items() if kind != "null" and not is_left_out(path, INVENTED)}
    invented = said - set(theirs)
    assert not invented, f"members that the real engine has not: {sorted(invented)}"
    left_out = NOT_SIMULATED | ({"timings"} if name == "responses_stream" else set())
    wanted = {path for path, kind in theirs.items() if kind != "null" and not is_left_out(path, left_out)}
    missing = wanted - set(ours)
    assert not missing, f"members that the real engine has: {sorted(missing)}"
    differing = {
        path: (kind, theirs[path])
        for path, kind in ours.items()
        if path in theirs and "null" not in (kind, theirs[path]) and kind != theirs[path]
    }
    assert not differing
