"""Record the captures of this folder anew from the real engine: `python tests/captures/llamacpp/record.py`.

Each capture is a folder-less pair: NAME.request.json (path and body) and NAME.response (the answer's body, byte for
byte), with NAME.meta.json (status, content type, engine). Needs the bundled model, which it fetches.
"""

import json
import sys
from pathlib import Path

import httpx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.fixtures.engine import PLAIN_TEMPLATE, running_engine  # noqa: E402 (the path is set above)

CHAT = "/v1/chat/completions"
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["C", "F"]}},
            "required": ["city", "unit"],
        },
    },
}
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "seed": 1}


def tool_messages() -> list[dict[str, object]]:
    """Earlier calls that the small model imitates."""
    messages: list[dict[str, object]] = []
    for number, (city, unit) in enumerate([("Rome", "C"), ("Oslo", "F"), ("Lima", "C")]):
        arguments = json.dumps({"city": city, "unit": unit})
        call = {"id": f"call{number}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        messages += [
            {"role": "user", "content": f"Weather in {city}, in {unit}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call{number}", "content": "ok"},
            {"role": "assistant", "content": "Done."},
        ]
    return [*messages, {"role": "user", "content": "Weather in Paris, in C?"}]


PERSON_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


def plain_requests() -> dict[str, tuple[str, object]]:
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "chat": (CHAT, {"messages": CAPITAL, "max_tokens": 16, **GREEDY}),
        "chat_stream": (CHAT, {"messages": CAPITAL, "max_tokens": 16, "stream": True, **GREEDY}),
        "chat_stream_usage": (CHAT, {"messages": CAPITAL, "max_tokens": 16, **usage, **GREEDY}),
        "chat_stream_length": (CHAT, {"messages": CAPITAL, "max_tokens": 3, **usage, **GREEDY}),
        "chat_stream_unicode": (
            CHAT,
            {
                "messages": [{"role": "user", "content": "Repeat exactly: 你好 🌍 naïve"}],
                "max_tokens": 24,
                **usage,
                **GREEDY,
            },
        ),
        "chat_stream_logprobs": (
            CHAT,
            {"messages": CAPITAL, "max_tokens": 3, "logprobs": True, "top_logprobs": 2, **usage, **GREEDY},
        ),
        "chat_two_choices": (CHAT, {"messages": CAPITAL, "max_tokens": 6, "n": 2, **GREEDY}),
        "chat_stream_two_choices": (CHAT, {"messages": CAPITAL, "max_tokens": 4, "n": 2, **usage, **GREEDY}),
        "chat_json_schema": (
            CHAT,
            {
                "messages": [{"role": "user", "content": "Give a person."}],
                "max_tokens": 60,
                "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON_SCHEMA}},
                **GREEDY,
            },
        ),
        "completion_stream_usage": (
            "/v1/completions",
            {"prompt": "The capital of France is", "max_tokens": 6, **usage, **GREEDY},
        ),
        "responses": ("/v1/responses", {"input": "Capital of France?", "max_output_tokens": 8, **GREEDY}),
        "responses_stream": (
            "/v1/responses",
            {"input": "Capital of France?", "max_output_tokens": 8, "stream": True, **GREEDY},
        ),
        "messages": ("/v1/messages", {"messages": CAPITAL, "max_tokens": 12, **GREEDY}),
        "messages_stream": ("/v1/messages", {"messages": CAPITAL, "max_tokens": 12, "stream": True, **GREEDY}),
        "error_context": (CHAT, {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 4}),
        "error_context_stream": (
            CHAT,
            {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 4, "stream": True},
        ),
        "error_context_messages": (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "word " * 3000}], "max_tokens": 4},
        ),
        "error_type": (CHAT, {"messages": CAPITAL, "temperature": "hot"}),
        "error_messages": (CHAT, {"messages": 5}),
        "error_grammar": (CHAT, {"messages": CAPITAL, "max_tokens": 4, "grammar": "bad ::= ("}),
        "error_embeddings": ("/v1/embeddings", {"input": "hello"}),
        "error_previous_response": ("/v1/responses", {"input": "hi", "previous_response_id": "resp_1"}),
        "error_path": ("/v1/nothing", {}),
    }


def tool_requests() -> dict[str, tuple[str, object]]:
    body = {"messages": tool_messages(), "tools": [WEATHER_TOOL], "max_tokens": 120, **GREEDY}
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "tool_call": (CHAT, body),
        "tool_call_stream": (CHAT, {**body, "stream": True}),
        "tool_call_stream_usage": (CHAT, {**body, **usage}),
    }


def reasoning_requests() -> dict[str, tuple[str, object]]:
    body = {"messages": CAPITAL, "max_tokens": 60, "reasoning_budget_tokens": 4, **GREEDY}
    return {
        "reasoning": (CHAT, body),
        "reasoning_stream": (CHAT, {**body, "stream": True, "stream_options": {"include_usage": True}}),
    }


def embedding_requests() -> dict[str, tuple[str, object]]:
    return {
        "embeddings": ("/v1/embeddings", {"input": ["hello world", "bonjour"]}),
        "embeddings_base64": ("/v1/embeddings", {"input": "hello world", "encoding_format": "base64"}),
        "generation_on_embeddings": (CHAT, {"messages": CAPITAL, "max_tokens": 4}),
        "error_embeddings_too_long": ("/v1/embeddings", {"input": "word " * 3000}),
    }


def record(url: str, requests: dict[str, tuple[str, object]]) -> None:
    for name, (path, body) in requests.items():
        answer = httpx.post(url + path, json=body, timeout=120)
        shown = json.dumps(body, ensure_ascii=False)
        request = {"path": path, "body": body if len(shown) < 4000 else "word repeated 3000 times as the prompt"}
        (HERE / f"{name}.request.json").write_text(json.dumps(request, ensure_ascii=False, indent=1) + "\n")
        (HERE / f"{name}.response").write_bytes(answer.content)
        meta = {"status": answer.status_code, "content_type": answer.headers.get("content-type")}
        (HERE / f"{name}.meta.json").write_text(json.dumps(meta) + "\n")
        print(answer.status_code, name, len(answer.content))  # noqa: T201


def main() -> None:
    with running_engine(template=PLAIN_TEMPLATE) as engine:
        record(engine.url, plain_requests())
    with running_engine(template=(HERE / "tools_template.jinja").read_text()) as engine:
        record(engine.url, tool_requests())
    with running_engine(template=(HERE / "reasoning_template.jinja").read_text()) as engine:
        record(engine.url, reasoning_requests())
    with running_engine(is_embedding=True) as engine:
        record(engine.url, embedding_requests())


if __name__ == "__main__":
    main()
