"""The bytes of each scenario: what a caller sends, and what an engine answers, block by block."""

import json
from dataclasses import dataclass

CHUNKS = 64
SENTENCE = "A headrace is the channel that brings water to a mill wheel. "
DATE = b"date: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: mock\r\n"
READ_BYTES = 65536
"""A large body arrives in pieces of about this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """One kind of request, and its answer."""

    kind: str
    request: tuple[bytes, ...]
    """In the reads in which it arrives."""
    answer: tuple[bytes, ...]
    backends: int = 1
    limits: str | None = None
    """What is declared of the callers, a key of `gateway.TENANCY`; None: as `--limits` says."""
    places: int | None = None
    """Places of each endpoint's queue; None: as `--places` says."""
    requests_per_batch: int = 640
    per: str = "request"
    units: int = 1
    """Of `per` in one request."""


def all_traffic(key: str) -> tuple[Traffic, ...]:
    """All scenarios, as callers with `key` would send them."""
    whole = (_whole_answer(),)
    return (
        Traffic(kind="small", request=_request(key, 450), answer=whole),
        Traffic(kind="no-limits", request=_request(key, 450), answer=whole, limits="none"),
        Traffic(kind="many-limits", request=_request(key, 450), answer=whole, limits="many"),
        Traffic(kind="queue-bounds", request=_request(key, 450), answer=whole, places=1000),
        Traffic(kind="four-backends", request=_request(key, 450), answer=whole, backends=4),
        Traffic(kind="8-backends", request=_request(key, 450), answer=whole, backends=8),
        Traffic(kind="64-backends", request=_request(key, 450), answer=whole, backends=64),
        Traffic(kind="prompt-32k", request=_request(key, 32_000), answer=whole),
        Traffic(kind="prompt-256k", request=_request(key, 256_000), answer=whole, requests_per_batch=160),
        Traffic(
            kind="stream-64",
            request=_request(key, 450, is_stream=True),
            answer=_stream(),
            requests_per_batch=64,
            per="chunk",
            units=CHUNKS,
        ),
    )


def _request(key: str, prompt_bytes: int, *, is_stream: bool = False) -> tuple[bytes, ...]:
    """As benchmarks/load.c writes it."""
    prompt = (SENTENCE * (prompt_bytes // len(SENTENCE) + 1))[:prompt_bytes]
    stream = ',"stream":true,"stream_options":{"include_usage":true}' if is_stream else ""
    body = (
        f'{{"model":"mock","messages":[{{"role":"system","content":"Answer briefly."}},'
        f'{{"role":"user","content":{json.dumps(prompt)}}}],"max_tokens":{CHUNKS},"temperature":0.7{stream}}}'
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: headrace-load\r\nAccept: */*\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    whole = head + body
    return tuple(whole[at : at + READ_BYTES] for at in range(0, len(whole), READ_BYTES))


def _whole_answer() -> bytes:
    """As benchmarks/mock_engine.c answers, which is as vLLM does."""
    message = {"role": "assistant", "content": SENTENCE * 3, "refusal": None, "annotations": None, "audio": None}
    message |= {"function_call": None, "tool_calls": [], "reasoning": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    usage = {"prompt_tokens": 128, "total_tokens": 168, "completion_tokens": 40, "prompt_tokens_details": None}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1796000000, "model": "mock"}
    answer |= {"choices": [choice], "service_tier": None, "system_fingerprint": None, "usage": usage}
    body = json.dumps({**answer, "prompt_logprobs": None}, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: application/json\r\n\r\n%b" % (
        DATE,
        len(body),
        body,
    )


def _stream() -> tuple[bytes, ...]:
    head = (
        b"HTTP/1.1 200 OK\r\n%bcontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        % DATE
    )
    usage = '"choices":[],"usage":{"prompt_tokens":128,"total_tokens":192,"completion_tokens":64}'
    texts = [_chunk(_delta(f'"content":" {number:05d}"')) for number in range(CHUNKS)]
    end = _chunk(_delta('"content":""', finish='"length"')) + _chunk(_event(usage)) + _chunk("data: [DONE]\n\n")
    first = head + _chunk(_delta('"role":"assistant","content":""')) + texts[0]
    return (first, *texts[1:-1], texts[-1] + end + b"0\r\n\r\n")


def _delta(delta: str, finish: str = "null") -> str:
    return _event(f'"choices":[{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish}}}]')


def _event(rest: str) -> str:
    identity = '"id":"chatcmpl-0000000000000001","object":"chat.completion.chunk","created":1796000000,"model":"mock"'
    return f"data: {{{identity},{rest}}}\n\n"


def _chunk(event: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event.encode())
