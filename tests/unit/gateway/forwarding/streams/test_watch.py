"""Usage in the words of three APIs, and the watcher that each dialect gets."""

from typing import Any

import msgspec
import pytest

from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.forwarding.streams.chunks import ChunkWatch
from headrace.gateway.forwarding.streams.typed_events import TypedEventWatch
from headrace.gateway.forwarding.streams.watch import StreamWatch, Usage, plausible, watch_for


@pytest.mark.parametrize(
    ("said", "counted"),
    [
        ({}, (None, None, None)),
        ({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}, (7, 3, None)),
        ({"prompt_tokens": 7, "completion_tokens": 0}, (7, 0, None)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}, (7, None, 4)),
        ({"prompt_tokens": 7, "prompt_tokens_details": None}, (7, None, None)),
        ({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 0}}, (7, 3, 0)),
        ({"input_tokens": 3, "output_tokens": 2, "cache_read_input_tokens": 4}, (7, 2, 4)),
        ({"prompt_tokens": 7, "unheard_of": {"deep": [1]}}, (7, None, None)),
    ],
)
def test_usage_is_one_thing_under_all_its_names(said: dict[str, Any], counted: tuple[int | None, ...]) -> None:
    """Input, output, cached: the whole input whichever API says it; what was not said is not known, never 0."""
    usage = msgspec.json.decode(msgspec.json.encode(said), type=Usage).counted()
    names = ("input_tokens", "output_tokens", "cached_input_tokens")
    assert usage == TokenUsage(**dict(zip(names, counted, strict=True)))


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ((7, 3, 6), (7, 3, 6)),
        ((7, 3, 7), (7, 3, 7)),
        ((7, 3, 8), (7, 3, 7)),
        ((0, 3, 1), (0, 3, 0)),
        ((None, 3, 1000000), (None, 3, None)),
        ((7, None, None), (7, None, None)),
    ],
)
def test_no_more_is_cached_than_went_in(told: tuple[int | None, ...], kept: tuple[int | None, ...]) -> None:
    """An engine that counts otherwise gives nobody a discount, and no clock a negative prompt."""
    names = ("input_tokens", "output_tokens", "cached_input_tokens")
    usage = plausible(TokenUsage(**dict(zip(names, told, strict=True))))
    assert usage == TokenUsage(**dict(zip(names, kept, strict=True)))


@pytest.mark.parametrize(
    ("dialect", "events"),
    [
        (
            ApiDialect.CHAT_COMPLETIONS,
            (
                b'data: {"id":5,"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
                b'data: {"object":1,"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
                b'"usage":{"prompt_tokens":"7","completion_tokens":3}}\n\ndata: [DONE]\n\n'
            ),
        ),
        (
            ApiDialect.MESSAGES,
            (
                b'data: {"type":"message_start","message":{"id":5,"usage":[1]}}\n\n'
                b'data: {"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":"a"}}\n\n'
                b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},'
                b'"usage":{"input_tokens":7.5,"output_tokens":3}}\n\ndata: {"type":"message_stop"}\n\n'
            ),
        ),
        (
            ApiDialect.RESPONSES,
            (
                b'data: {"type":"response.output_text.delta","delta":"a"}\n\n'
                b'data: {"type":"response.completed",'
                b'"response":{"id":5,"usage":{"input_tokens":"7","output_tokens":3}}}\n\n'
            ),
        ),
    ],
)
def test_an_odd_count_ends_no_stream(dialect: ApiDialect, events: bytes) -> None:
    """The stream passes whole and ends well; what could not be read of its usage is unknown."""
    watch = watch_for(request(dialect))
    assert watch.feed(events) == events
    assert (watch.is_done, watch.error, watch.output_events) == (True, None, 1)
    assert watch.usage == TokenUsage(input_tokens=None, output_tokens=3)


def request(dialect: ApiDialect) -> InferenceRequest:
    return InferenceRequest(
        dialect=dialect, path=b"/", body=b"{}", fields={}, requested_model="m", is_stream=True, wants_usage=False,
        output_limit_tokens=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "kind"),
    [
        (ApiDialect.CHAT_COMPLETIONS, ChunkWatch),
        (ApiDialect.COMPLETIONS, ChunkWatch),
        (ApiDialect.RESPONSES, TypedEventWatch),
        (ApiDialect.MESSAGES, TypedEventWatch),
    ],
)
def test_each_dialect_gets_its_watcher(dialect: ApiDialect, kind: type[StreamWatch]) -> None:
    """A watcher per stream: none is shared."""
    first, second = watch_for(request(dialect)), watch_for(request(dialect))
    assert type(first) is kind
    assert first is not second
    assert (first.is_done, first.error, first.usage, first.output_events) == (False, None, None, 0)


@pytest.mark.parametrize("count", [-1, 2**31, 10**18, 2**64 - 1])
def test_a_count_that_cannot_be_is_not_known(count: int) -> None:
    """An engine's mistake is neither refunded nor billed, and costs no record of the ledger."""
    said = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": {"cached_tokens": count}}
    usage = msgspec.json.decode(msgspec.json.encode(said), type=Usage).counted()
    assert (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens) == (None, None, None)
    least = msgspec.json.decode(b'{"input_tokens":0,"output_tokens":2147483647}', type=Usage).counted()
    assert (least.input_tokens, least.output_tokens) == (0, 2**31 - 1)
