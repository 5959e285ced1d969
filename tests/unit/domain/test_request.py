"""The body an endpoint gets: the caller's bytes, but for what must change."""

import json
from typing import Any

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import OUTPUT_LIMIT_FIELDS, ApiDialect, InferenceRequest
from headrace.gateway.endpoints.serving import output_limit_aliases


def request_of(body: bytes, **fields: Any) -> InferenceRequest:
    given: dict[str, Any] = {"dialect": ApiDialect.CHAT_COMPLETIONS, "is_stream": True, "wants_usage": False, **fields}
    return InferenceRequest(
        path=b"/v1/chat/completions",
        requested_model="m",
        body=body,
        fields=msgspec.json.decode(body, type=dict[str, msgspec.Raw]),
        output_limit_tokens=None,
        **given,
    )


def test_nothing_to_change_leaves_the_bytes() -> None:
    """Spaces, order and number formats stay."""
    body = b' { "model": "m", "top_p": 1.000, "stream": false }'
    assert request_of(body, is_stream=False).body_for("m", asks_usage=True) is body
    assert request_of(body, wants_usage=True).body_for("m", asks_usage=True) is body
    assert request_of(body).body_for("m", asks_usage=False) is body


@pytest.mark.parametrize("dialect", [ApiDialect.RESPONSES, ApiDialect.MESSAGES])
def test_dialects_that_always_count_are_not_asked(dialect: ApiDialect) -> None:
    """Their streams carry usage anyway."""
    body = b'{"model":"m","stream":true}'
    assert request_of(body, dialect=dialect).body_for("m", asks_usage=True) is body


def test_usage_is_asked_for_with_the_rest_untouched() -> None:
    """The option is put in front; what follows is the caller's, byte for byte."""
    sent = request_of(b' {"model": "m", "top_p": 1.000}').body_for("m", asks_usage=True)
    assert sent == b'{"stream_options":{"include_usage":true},"model": "m", "top_p": 1.000}'


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": None, "other": 1.5}])
def test_options_that_the_caller_gave_are_kept(options: dict[str, object] | None) -> None:
    """Only `include_usage` changes, and the key is not there twice."""
    body = json.dumps({"model": "m", "stream_options": options}).encode()
    sent = request_of(body).body_for("m", asks_usage=True)
    assert json.loads(sent)["stream_options"] == {**(options or {}), "include_usage": True}
    assert sent.count(b'"stream_options"') == 1


def test_another_name_at_the_engine_keeps_every_value() -> None:
    """The model is renamed; numbers are not rounded, text is not re-encoded."""
    sent = request_of('{"model":"m","seed":12345678901234567890.0,"x":"\\u00e9é"}'.encode(), is_stream=False)
    assert sent.body_for("n", asks_usage=True) == '{"model":"n","seed":12345678901234567890.0,"x":"\\u00e9é"}'.encode()


@pytest.mark.parametrize(
    ("body", "dialect", "expected"),
    [
        (b' {"model":"m", "top_p": 1.0}', "chat.completions", b'{"max_tokens":7,"model":"m", "top_p": 1.0}'),
        (b'{"model":"m"}', "responses", b'{"max_output_tokens":7,"model":"m"}'),
        (b'{"model":"m","max_completion_tokens":99}', "chat.completions", b'{"model":"m","max_completion_tokens":7}'),
        (b'{"model":"m","max_tokens":null}', "messages", b'{"model":"m","max_tokens":7}'),
        (b'{"n_predict":9,"max_tokens":9,"model":"m"}', "completions", b'{"n_predict":7,"max_tokens":7,"model":"m"}'),
    ],
)
def test_an_output_limit_is_put_in_under_the_name_the_caller_uses(body: bytes, dialect: str, expected: bytes) -> None:
    """All aliases that are there say the same; without any, the dialect's own is added."""
    request = request_of(body, dialect=ApiDialect(dialect))
    limited = request.with_output_limit(7)
    assert (limited.body, limited.output_limit_tokens) == (expected, 7)
    assert msgspec.json.decode(expected, type=dict[str, msgspec.Raw]) == limited.fields
    assert (request.body, request.output_limit_tokens) == (body, None)


def test_every_engines_name_for_the_output_limit_is_known() -> None:
    """A limit that went in under one name must not be bypassed under another."""
    assert set(OUTPUT_LIMIT_FIELDS) == output_limit_aliases()


def test_options_nested_too_deeply_are_the_callers_fault() -> None:
    """What went in just so at entry may not fit where usage is asked for: 400, and no bug of ours."""
    request = request_of(b'{"model":"m","stream":true}')
    request.fields = request.fields | {"stream_options": msgspec.Raw(b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}")}
    with pytest.raises(RequestError) as caught:
        request.body_for("m", asks_usage=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
