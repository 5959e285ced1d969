"""What is read of an answer that is not streamed."""

import gzip

import pytest

from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.forwarding.whole_answer import read_envelope, what_came


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (b'{"prompt_tokens":7,"completion_tokens":3}', TokenUsage(input_tokens=7, output_tokens=3)),
        (b'{"prompt_tokens":7,"total_tokens":7}', TokenUsage(input_tokens=7, output_tokens=None)),
        (
            b'{"prompt_tokens":7,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":5}}',
            TokenUsage(input_tokens=7, output_tokens=0, cached_input_tokens=5),
        ),
        (
            b'{"input_tokens":7,"output_tokens":3,"cache_read_input_tokens":2}',
            TokenUsage(input_tokens=9, output_tokens=3, cached_input_tokens=2),
        ),
        (
            b'{"input_tokens":1,"output_tokens":3,"cache_read_input_tokens":2,"cache_creation_input_tokens":4}',
            TokenUsage(input_tokens=7, output_tokens=3, cached_input_tokens=2),
        ),
        (b"null", UNKNOWN_USAGE),
    ],
)
def test_usage_is_read_in_every_dialect(usage: bytes, counted: TokenUsage) -> None:
    """What the engine did not say is unknown, never zero."""
    envelope = read_envelope(b'{"id":"a","usage":%b}' % usage)
    assert envelope is not None
    assert (UNKNOWN_USAGE if envelope.usage is None else envelope.usage.counted(), envelope.id) == (counted, "a")


def test_an_answer_without_usage_or_id_is_still_an_answer() -> None:
    """Embeddings have no id, some engines no usage."""
    envelope = read_envelope(b'{"data":[]}')
    assert envelope is not None
    assert (envelope.usage, envelope.id, envelope.failure) == (None, None, None)


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        (b'{"id":5,"usage":{"prompt_tokens":7,"completion_tokens":3}}', (7, 3, None)),
        (b'{"id":null,"status":1,"usage":{"prompt_tokens":"7","completion_tokens":3}}', (None, 3, None)),
        (b'{"usage":{"prompt_tokens":7.0,"completion_tokens":3.5}}', (None, None, None)),
        (b'{"usage":{"prompt_tokens":7,"prompt_tokens_details":{"cached_tokens":"2"}}}', (7, None, None)),
        (b'{"usage":{"prompt_tokens":7,"prompt_tokens_details":[2],"completion_tokens":true}}', (7, None, None)),
        (b'{"usage":{"input_tokens":7,"output_tokens":3,"cache_read_input_tokens":-9}}', (None, 3, None)),
        (b'{"usage":[1,2]}', None),
        (b'{"usage":"none","object":["list"],"choices":"x"}', None),
    ],
)
def test_an_odd_envelope_loses_no_answer(body: bytes, counted: tuple[int | None, ...] | None) -> None:
    """What cannot be read of it is unknown, and the rest is still known."""
    envelope = read_envelope(body)
    assert envelope is not None
    assert (envelope.failure, envelope.id) == (None, None)
    usage = None if envelope.usage is None else envelope.usage.counted()
    found = None if usage is None else (usage.input_tokens, usage.output_tokens, usage.cached_input_tokens)
    assert found == counted


def test_an_odd_envelope_hides_no_failure() -> None:
    """An engine that gave up on one choice is believed, though another one's reason is no text."""
    envelope = read_envelope(b'{"id":1,"choices":[{"finish_reason":4},{"finish_reason":"abort"}]}')
    assert envelope is not None
    assert envelope.failure is not None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"id":', b'{"id":"a"}{', b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_a_broken_answer(body: bytes) -> None:
    """Half an answer, or a proxy's page, is never passed on as success."""
    assert read_envelope(body) is None


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"", "nothing"),
        (b"  \n", "nothing"),
        (b"<!doctype html><html>", "HTML or XML"),
        (gzip.compress(b"{}", mtime=0), "gzip"),
        (b"data: {}\n\n", "events"),
        (b": ping\n\n", "events"),
        (b'{"id":', "broken JSON"),
        (b"Bad gateway", "something else"),
    ],
)
def test_what_came_in_place_of_an_answer_is_named(body: bytes, name: str) -> None:
    """The operator and the caller are told what the engine, or a proxy before it, has sent."""
    assert what_came(body) == name
