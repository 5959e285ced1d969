"""A whole answer told as a stream of its dialect: for callers that were promised one, and engines that know better.

Counterparts: `whole_answer.py`, which reads such answers; `delivery.py` and `handed_over.py`, which send them on.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.domain.request import ApiDialect
from headrace.gateway.forwarding.streams.resumed_messages import typed_event

DONE = b"data: [DONE]\n\n"
MISSHAPEN = (LookupError, TypeError, AttributeError)
"""What an answer raises that has another shape than its dialect's."""
Json = dict[str, Any]


def whole_as_stream(body: bytes, dialect: ApiDialect, *, hides_usage: bool) -> bytes:
    """Tell a whole answer, a JSON object, as a stream of `dialect`, from its first event to its end.

    `hides_usage`: the gateway asked for it, the caller did not. What has another shape than its dialect's is one event.
    """
    answer: Json = msgspec.json.decode(body)
    try:
        if dialect is ApiDialect.MESSAGES:
            return b"".join([typed_event(event) for event in _message_events(answer)])
        if dialect is ApiDialect.RESPONSES:
            numbered = enumerate(_response_events(answer))
            return b"".join([typed_event({**event, "sequence_number": number}) for number, event in numbered])
        return b"".join([_event(event) for event in _chunks(answer, hides_usage=hides_usage)]) + DONE
    except MISSHAPEN:
        return _event(msgspec.json.decode(body)) + DONE


def as_stream(body: bytes) -> bytes:
    """Tell a whole answer of chat completions or completions as a stream would: one event, its usage, the end."""
    return whole_as_stream(body, ApiDialect.CHAT_COMPLETIONS, hides_usage=False)


def _event(event: Json) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(event)


def _chunks(answer: Json, *, hides_usage: bool) -> list[Json]:
    usage = answer.pop("usage", None)
    for choice in answer["choices"]:
        message = choice.pop("message", None)
        if message is not None:
            answer["object"] = "chat.completion.chunk"
            choice["delta"] = {name: value for name, value in message.items() if value is not None}
            for index, call in enumerate(message.get("tool_calls") or ()):
                call.setdefault("index", index)
    events = [answer]
    if usage is not None and not hides_usage:
        events.append({**answer, "choices": [], "usage": usage})
    return events


def _message_events(answer: Json) -> Iterator[Json]:
    """Source: Anthropic API reference, streaming messages."""
    content: list[Json] = answer["content"]
    usage: Json = answer.get("usage") or {}
    begun: Json = {**answer, "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 0}}}
    for index, block in enumerate(content):
        begun, deltas = _block(block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": answer.get("stop_reason") or "end_turn", "stop_sequence": answer.get("stop_sequence")}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _block(block: Json) -> tuple[Json, list[Json]]:
    """One block of content: as it begins, and what is added to it."""
    match block.get("type"):
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use":
            given = msgspec.json.encode(block["input"]).decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if block.get("signature"):
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case _:
            return block, []


def _response_events(answer: Json) -> Iterator[Json]:
    """Source: OpenAI API reference, Responses streaming events."""
    begun: Json = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(answer["output"]):
        yield from _item_events(item, index)
    end = "response.incomplete" if answer.get("status") == "incomplete" else "response.completed"
    yield {"type": end, "response": answer}


def _item_events(item: Json, output_index: int) -> Iterator[Json]:
    at = {"output_index": output_index}
    is_message = item.get("type") == "message"
    begun: Json = {**item, "status": "in_progress"} | ({"content": []} if is_message else {})
    yield {"type": "response.output_item.added", **at, "item": begun}
    for content_index, part in enumerate(item["content"] if is_message else ()):
        here = {"item_id": item.get("id"), **at, "content_index": content_index}
        is_text = part.get("type") == "output_text"
        yield {"type": "response.content_part.added", **here, "part": {**part, "text": ""} if is_text else part}
        if is_text:
            yield {"type": "response.output_text.delta", **here, "delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **here, "part": part}
    if item.get("type") == "function_call":
        here = {"item_id": item.get("id"), **at}
        yield {"type": "response.function_call_arguments.delta", **here, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **here, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", **at, "item": item}
