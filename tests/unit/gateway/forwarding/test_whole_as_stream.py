"""A whole answer, told as the stream that its caller was promised."""

import json
from typing import Any

import pytest

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.forwarding.streams.watch import watch_for
from headrace.gateway.forwarding.whole_as_stream import as_stream, whole_as_stream
from headrace.gateway.http.sse import event_field, iter_events

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ANSWERS: dict[ApiDialect, dict[str, Any]] = {
    ApiDialect.CHAT_COMPLETIONS: {
        "id": "a",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hi", "tool_calls": [CALL]},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    },
    ApiDialect.COMPLETIONS: {
        "id": "a",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    },
    ApiDialect.MESSAGES: {
        "id": "a",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
    ApiDialect.RESPONSES: {
        "id": "a",
        "object": "response",
        "status": "completed",
        "output": [
            {"id": "o", "type": "message", "content": [{"type": "output_text", "text": "Hi"}]},
            {"id": "f", "type": "function_call", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    },
}


def request(dialect: ApiDialect) -> InferenceRequest:
    return InferenceRequest(
        dialect=dialect, path=b"/", body=b"{}", fields={}, requested_model="m", is_stream=True, wants_usage=True,
        output_limit_tokens=None,
    )  # fmt: skip


def payloads(stream: bytes) -> list[dict[str, Any]]:
    found = [event_field(event, b"data") for event in iter_events(stream)]
    return [json.loads(payload) for payload in found if payload is not None and payload != b"[DONE]"]


@pytest.mark.parametrize("dialect", ANSWERS)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_whole_answer_is_a_stream_of_its_dialect(dialect: ApiDialect, indent: int | None) -> None:
    """However the engine has set it out, a client of that API reads it to its end, and its usage is the same."""
    stream = whole_as_stream(json.dumps(ANSWERS[dialect], indent=indent).encode(), dialect, hides_usage=False)
    watch = watch_for(request(dialect))
    assert watch.feed(stream) == stream
    assert (watch.is_done, watch.error, watch.has_output) == (True, None, True)
    assert watch.usage is not None
    assert (watch.usage.input_tokens, watch.usage.output_tokens) == (7, 3)
    assert all(line.startswith((b"data: ", b"event: ")) for line in stream.splitlines() if line)


def test_usage_that_the_caller_did_not_ask_for_is_left_out() -> None:
    """As in any stream for which the gateway alone wanted it."""
    body = json.dumps(ANSWERS[ApiDialect.CHAT_COMPLETIONS]).encode()
    assert b"usage" not in whole_as_stream(body, ApiDialect.CHAT_COMPLETIONS, hides_usage=True)


def test_calls_of_tools_are_numbered() -> None:
    """A piece of a call says which call it belongs to."""
    [first, usage] = payloads(as_stream(json.dumps(ANSWERS[ApiDialect.CHAT_COMPLETIONS]).encode()))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "Hi", "tool_calls": [CALL | {"index": 0}]}
    assert (usage["choices"], usage["usage"]["prompt_tokens"]) == ([], 7)


def test_blocks_of_a_message_are_put_together_again() -> None:
    """Thinking, text and calls arrive whole."""
    body = json.dumps(ANSWERS[ApiDialect.MESSAGES]).encode()
    deltas = [
        e["delta"]
        for e in payloads(whole_as_stream(body, ApiDialect.MESSAGES, hides_usage=False))
        if "index" in e and "delta" in e
    ]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "s"},
        {"type": "text_delta", "text": "Hi"},
        {"type": "input_json_delta", "partial_json": '{"x":1}'},
    ]


def test_a_response_comes_whole_at_its_end() -> None:
    """Clients take the answer from the last event; events are numbered."""
    body = json.dumps(ANSWERS[ApiDialect.RESPONSES]).encode()
    events = payloads(whole_as_stream(body, ApiDialect.RESPONSES, hides_usage=False))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[-1]["type"], events[-1]["response"]) == ("response.completed", ANSWERS[ApiDialect.RESPONSES])


@pytest.mark.parametrize("dialect", ANSWERS)
@pytest.mark.parametrize("answer", [{}, {"choices": 1, "content": 1, "output": [1]}, {"choices": [1], "content": [1]}])
def test_an_answer_of_another_shape_is_one_event(dialect: ApiDialect, answer: dict[str, Any]) -> None:
    """Nothing of it is lost, and it is still a stream."""
    stream = whole_as_stream(json.dumps(answer).encode(), dialect, hides_usage=False)
    assert stream == b"data: " + json.dumps(answer, separators=(",", ":")).encode() + b"\n\ndata: [DONE]\n\n"
