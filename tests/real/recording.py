"""Records answers of a real engine, byte for byte, for tests that run without it: `python -m tests.real.vllm record`.

Per capture under tests/captures/<engine>/: NAME.request.json (path and body), NAME.response (the answer's body) and
NAME.meta.json (status, content type). `engine.json` there says which version answered, started how.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from tests.captures.llamacpp.record import (
    CAPITAL,
    CHAT,
    GREEDY,
    PERSON_SCHEMA,
    WEATHER_TOOL,
    plain_requests,
    tool_requests,
)
from tests.real.installation import environment_folder
from tests.real.serving import RealEngine, ServeRecipe, serving

from headrace.domain.endpoint import EngineKind

CAPTURES = Path(__file__).parents[1] / "captures"
ANSWER_S = 180.0
"""The first request for log-probabilities makes vLLM compile for half a minute."""

SILENCE_S = 20.0
"""Longest wait for the next byte of a stream that was cut: vLLM can fall silent and keep the connection open."""

Requests = dict[str, tuple[str, object]]

LONG = [{"role": "user", "content": "word " * 3000}]
LONG_SHOWN = 4000
"""A body of more characters is recorded by its description."""

STREAM = {"stream": True, "stream_options": {"include_usage": True}}
CAPITAL_IS = [504, 3575, 282, 4649, 314]
"""The tokens of "The capital of France is"."""

CONTINUED = [*CAPITAL, {"role": "assistant", "content": "The capital of"}]


ONLY_LLAMACPP = ("error_grammar", "chat_two_choices", "chat_stream_two_choices")
"""GBNF, and several choices without sampling, which vLLM refuses."""


def requests_of_both() -> Requests:
    """What both engines are asked: the requests that llama.cpp was asked, without its own fields."""
    shared = {name: request for name, request in plain_requests().items() if name not in ONLY_LLAMACPP}
    sampled: dict[str, object] = {"messages": CAPITAL, "max_tokens": 4, "n": 2, "temperature": 0.5, "seed": 1}
    json_schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON_SCHEMA}}
    continuing = {
        "messages": CONTINUED,
        "max_tokens": 12,
        "continue_final_message": True,
        "add_generation_prompt": False,
        **GREEDY,
    }
    begun = [*CAPITAL, {"role": "assistant", "content": '{"name": "Paris", "age"'}]
    continuing_json = {**continuing, "messages": begun, "max_tokens": 40}
    return {
        **shared,
        **tool_requests(),
        **refused_requests(),
        "chat_two_choices": (CHAT, sampled),
        "chat_stream_two_choices": (CHAT, {**sampled, **STREAM}),
        "two_greedy_choices": (CHAT, {**sampled, "temperature": 0}),
        "chat_stream_json_schema": (
            CHAT,
            {"messages": CAPITAL, "max_tokens": 60, "response_format": json_schema, **STREAM, **GREEDY},
        ),
        "chat_continued": (CHAT, continuing),
        "chat_stream_continued": (CHAT, {**continuing, **STREAM}),
        "completion_stop": ("/v1/completions", {"prompt": "1 2 3 4", "max_tokens": 20, "stop": ["7"], **GREEDY}),
        "tool_choice_named": (
            CHAT,
            {
                "messages": CAPITAL,
                "tools": [WEATHER_TOOL],
                "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
                "max_tokens": 160,
                **GREEDY,
            },
        ),
        "chat_continued_json": (CHAT, {**continuing_json, "response_format": json_schema}),
        "chat_continued_json_unbound": (CHAT, continuing_json),
        "completion_token_ids": (
            "/v1/completions",
            {"prompt": CAPITAL_IS, "max_tokens": 4, "return_token_ids": True, **GREEDY},
        ),
    }


def refused_requests() -> Requests:
    """What at least one of the engines refuses."""
    return {
        "error_model": (CHAT, {"model": "nope", "messages": CAPITAL, "max_tokens": 2}),
        "error_max_tokens": (CHAT, {"messages": CAPITAL, "max_tokens": 5000}),
        "error_context_completion": ("/v1/completions", {"prompt": "word " * 3000, "max_tokens": 2}),
        "error_temperature": (CHAT, {"messages": CAPITAL, "max_tokens": 2, "temperature": -1}),
        "error_schema": (
            CHAT,
            {
                "messages": CAPITAL,
                "max_tokens": 4,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"type": "no such type"}},
                },
            },
        ),
        "error_no_messages": (CHAT, {"messages": []}),
        "error_tools_empty": (CHAT, {"messages": CAPITAL, "max_tokens": 2, "tools": []}),
        "error_malformed": (CHAT, b'{"messages": ['),
    }


def record(recipe: ServeRecipe, names: Sequence[str] = ()) -> None:
    """Ask the engine everything, or only `names`, then end it under streams, and write what it answered."""
    requests = {name: asked for name, asked in requests_of_both().items() if not names or name in names}
    folder = CAPTURES / recipe.kind
    folder.mkdir(parents=True, exist_ok=True)
    with serving(recipe) as engine:
        argv = [str(word).replace(str(engine.model), "MODEL") for word in recipe.argv(Path("python"), engine.model, 0)]
        (folder / "engine.json").write_text(json.dumps({"version": engine.version, "command": argv}, indent=1) + "\n")
        for name, (path, body) in requests.items():
            keep(folder, name, path, body, ask(engine, path, body), environment_folder(recipe.install))
        if names:
            return
        if recipe.kind is EngineKind.VLLM:  # SGLang finishes its streams
            keep_cut(folder, "cut_by_sigterm", engine, engine.send_sigterm)
            engine.end()
            engine.launch()
            engine.wait_until_ready()
        keep_cut(folder, "cut_by_kill", engine, engine.kill_core)


def ask(engine: RealEngine, path: str, body: object) -> httpx.Response:
    sent = body if isinstance(body, bytes) else json.dumps({"model": engine.served_model, **dict(body)}).encode()  # type: ignore[call-overload]
    return httpx.post(engine.url + path, content=sent, headers={"content-type": "application/json"}, timeout=ANSWER_S)


def keep(folder: Path, name: str, path: str, body: object, answer: httpx.Response, environment: Path) -> None:
    """Write one answer; where the engine names its own files in it, their folder is called /srv/engine."""
    shown: object = body.decode() if isinstance(body, bytes) else body
    if len(json.dumps(shown)) > LONG_SHOWN:
        shown = "the word 'word' 3000 times as the prompt"
    (folder / f"{name}.request.json").write_text(
        json.dumps({"path": path, "body": shown}, ensure_ascii=False, indent=1) + "\n"
    )
    (folder / f"{name}.response").write_bytes(answer.content.replace(str(environment).encode(), b"/srv/engine"))
    meta = {"status": answer.status_code, "content_type": answer.headers.get("content-type")}
    (folder / f"{name}.meta.json").write_text(json.dumps(meta) + "\n")
    print(answer.status_code, name, len(answer.content), flush=True)  # noqa: T201


def keep_cut(folder: Path, name: str, engine: RealEngine, cut: Callable[[], object]) -> None:
    """Open a long stream, end the engine when it flows, and keep what arrived until the connection ended."""
    ask(engine, CHAT, {"messages": CAPITAL, "max_tokens": 30, "ignore_eos": True})
    body = {
        "model": engine.served_model,
        "messages": CAPITAL,
        "max_tokens": 1500,
        "ignore_eos": True,
        **STREAM,
        **GREEDY,
    }
    received = b""
    timer = threading.Timer(1.5, cut)
    with httpx.stream("POST", engine.url + CHAT, json=body, timeout=SILENCE_S) as answer:
        timer.start()
        started_mono_s = time.monotonic()
        try:
            for piece in answer.iter_raw():
                received += piece
            end = "ended in order"
        except httpx.TransportError as error:
            end = type(error).__name__
        end += f" {time.monotonic() - started_mono_s - 1.5:.2f} s after the signal"
    (folder / f"{name}.response").write_bytes(received)
    meta = {"status": answer.status_code, "content_type": answer.headers.get("content-type"), "end": end}
    (folder / f"{name}.meta.json").write_text(json.dumps(meta) + "\n")
    print(name, len(received), end, flush=True)  # noqa: T201
