"""Caps of a single request: the tightest of all levels, and what counts."""

import json
from typing import Any

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.quota import RequestCaps
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.admission.core.caps import check_caps, tightest


def request_of(*, estimated: int = 0, limit: int | None = None, **fields: Any) -> InferenceRequest:
    body = json.dumps(fields).encode()
    return InferenceRequest(
        dialect=ApiDialect.CHAT_COMPLETIONS,
        path=b"/v1/chat/completions",
        requested_model="m",
        body=body,
        fields=msgspec.json.decode(body, type=dict[str, msgspec.Raw]),
        is_stream=False,
        wants_usage=False,
        output_limit_tokens=limit,
        estimated_input_tokens=estimated,
    )


def test_the_tightest_of_all_levels() -> None:
    """Each cap is the lowest that any level gives."""
    assert tightest([RequestCaps(), RequestCaps()]) is None
    caps = tightest([RequestCaps(tools=5, images=0), RequestCaps(tools=3), RequestCaps(output_tokens=9)])
    assert caps == RequestCaps(tools=3, images=0, output_tokens=9)


@pytest.mark.parametrize("asked", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("cap", "make"),
    [
        (RequestCaps(output_tokens=2), lambda asked: (request_of(limit=asked), 1)),
        (RequestCaps(choices=2), lambda asked: (request_of(), asked)),
        (RequestCaps(tools=2), lambda asked: (request_of(tools=[{}] * asked), 1)),
        (RequestCaps(tools=2), lambda asked: (request_of(tools={str(name): {} for name in range(asked)}), 1)),
        (RequestCaps(tools=2), lambda asked: (request_of(tools=[{}], functions=[{}] * (asked - 1)), 1)),
        (RequestCaps(context_tokens=2), lambda asked: (request_of(estimated=asked), 1)),
        (RequestCaps(context_tokens=12), lambda asked: (request_of(estimated=asked, limit=10), 1)),
        (RequestCaps(images=2), lambda asked: (request_of(messages=[{"content": [{"type": "image_url"}] * asked}]), 1)),
        (RequestCaps(images=2), lambda asked: (request_of(input=[{"content": [{"type": "input_image"}]}] * asked), 1)),
    ],
)
def test_a_cap_lets_through_what_it_names_and_no_more(cap: RequestCaps, make: Any, asked: int) -> None:
    """At 0, 1, the cap and one more."""
    request, choices = make(asked)
    if asked <= 2:
        check_caps(cap, request, choices)
        return
    with pytest.raises(RequestError, match=r"per_request\.\w+ is (2|12) for this key"):
        check_caps(cap, request, choices)


@pytest.mark.parametrize("kind", [["image"], {"a": 1}, None, 5, "text"])
def test_a_part_of_no_known_type_is_no_image(kind: Any) -> None:
    """Whatever callers write as a part's type: it is the engine's to refuse, and never a bug of ours."""
    check_caps(RequestCaps(images=0), request_of(messages=[{"content": [{"type": kind}]}]), 1)


def test_an_output_cap_counts_where_the_caller_gave_no_limit() -> None:
    """What will be put in as the limit is part of the context."""
    with pytest.raises(RequestError) as refused:
        check_caps(RequestCaps(context_tokens=100, output_tokens=60), request_of(estimated=50), 1)
    assert refused.value.code is ErrorCode.CONTEXT_TOO_LONG


def test_what_holds_no_tools_is_left_to_the_engine() -> None:
    """Only what can be counted is."""
    check_caps(RequestCaps(tools=0, images=0), request_of(tools="none", messages="x"), 1)


@pytest.mark.parametrize(
    ("cap", "field"),
    [(RequestCaps(tools=9), "tools"), (RequestCaps(images=9), "messages"), (RequestCaps(images=9), "input")],
)
def test_what_is_under_a_cap_and_cannot_be_counted_is_refused(cap: RequestCaps, field: str) -> None:
    """Nested so deeply that it cannot be read, it must not slip under the cap, and is no bug of ours."""
    request = request_of()
    request = msgspec.structs.replace(request, fields={field: msgspec.Raw(b"[" * 3000 + b"]" * 3000)})
    with pytest.raises(RequestError, match=f"field {field} is nested too deeply"):
        check_caps(cap, request, 1)
