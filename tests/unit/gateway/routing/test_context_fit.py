"""Which endpoints a request fits into."""

from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from headrace.domain.errors import ErrorCode
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.context_fit import fitting, least_context, needed_tokens, too_long


@dataclass
class Held:
    """What is read of an endpoint."""

    context_tokens: int | None
    is_usable: bool = True


def held(*contexts: int | None) -> list[Endpoint]:
    return [cast("Endpoint", Held(context)) for context in contexts]


def asked(
    tokens: int, *, bytes_each: int = 4, limit: int | None = None, dialect: ApiDialect = ApiDialect.CHAT_COMPLETIONS,
    fields: dict[str, msgspec.Raw] | None = None,
) -> InferenceRequest:  # fmt: skip
    return InferenceRequest(
        dialect=dialect, path=b"/v1/x", requested_model="m", body=b"{}", fields=fields or {}, is_stream=False,
        wants_usage=False, output_limit_tokens=limit, estimated_input_tokens=tokens, prompt_bytes=tokens * bytes_each,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "limit", "kept"),
    [
        (100, None, [1000, 8000, None]),
        (999, None, [1000, 8000, None]),
        (1000, None, [8000, None]),
        (100, 900, [1000, 8000, None]),
        (100, 901, [8000, None]),
        (9000, None, [None]),
    ],
)
def test_input_and_output_must_fit(tokens: int, limit: int | None, kept: list[int | None]) -> None:
    """Whoever holds both is kept, and whoever nobody knows about."""
    found = fitting(held(1000, 8000, None), asked(tokens, limit=limit))
    assert [one.context_tokens for one in found] == kept


def test_an_estimate_refuses_nothing_that_may_fit() -> None:
    """What is estimated too long for all goes to the longest usable context, and is refused only beyond any doubt."""
    endpoints = held(1000, 8000)
    assert [one.context_tokens for one in fitting(endpoints, asked(9000))] == [8000]
    assert [one.context_tokens for one in fitting(endpoints, asked(63_000))] == [8000]
    assert fitting(endpoints, asked(64_000)) == ()
    cast("Held", endpoints[1]).is_usable = False
    assert [one.context_tokens for one in fitting(endpoints, asked(7_000, limit=5000))] == [1000]


def test_refusal_names_the_limit() -> None:
    """The caller reads how long the prompt is at least, and what the longest context holds."""
    error = too_long(held(1000, 8000), asked(80_000))
    assert error.code is ErrorCode.CONTEXT_TOO_LONG
    assert "10000 tokens or more (about 80000)" in error.message
    assert error.figures == {"context_tokens": 8000}


@pytest.mark.parametrize(
    "request_",
    [
        asked(90_000, dialect=ApiDialect.EMBEDDINGS),
        asked(90_000, dialect=ApiDialect.COMPLETIONS, fields={"prompt": msgspec.Raw(b'["a", "b"]')}),
        asked(90_000, fields={"truncation": msgspec.Raw(b'"auto"')}),
    ],
)
def test_several_inputs_and_cut_ones_fit_anywhere(request_: InferenceRequest) -> None:
    """Nobody knows from outside how long each of several inputs is, or how much an engine leaves of one."""
    endpoints = held(1000)
    assert fitting(endpoints, request_) is endpoints


def test_nothing_known_bounds_nothing() -> None:
    """Without a known context there is no least one; what is needed counts one token of output."""
    assert least_context(held(None, None)) is None
    assert least_context(held(None, 5, 3)) == 3
    assert needed_tokens(asked(10)) == 11
