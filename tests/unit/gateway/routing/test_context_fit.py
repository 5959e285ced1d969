"""Which endpoints a request fits into."""

from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.context_fit import (
    as_short,
    fitting,
    least_context,
    longest_context,
    needed_tokens,
    note_too_long,
    too_long,
    without_path,
)


@dataclass
class Pool:
    """What is read of its plan."""

    name: str = "p"
    model: str = "m"
    engine: str = "vllm"
    embeddings: bool = False


@dataclass
class Held:
    """What is read of an endpoint."""

    context_tokens: int | None
    is_usable: bool = True
    plan: Pool = field(default_factory=Pool)


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
    assert longest_context(held(3, 5)) == 5
    assert longest_context(held(3, None)) is None


def refused(**figures: int) -> RequestError:
    return RequestError(ErrorCode.CONTEXT_TOO_LONG, "too long", figures=figures)


@pytest.mark.parametrize(
    ("own", "told", "alike"),
    [
        (4096, 4096, [("p", 4096), ("q", 2048)]),
        (4096, None, [("p", 4096), ("q", 2048)]),
        (32768, 4096, [("p", 32768), ("p", 4096), ("q", 2048)]),
        (None, None, [("p", None)]),
        (None, 4096, [("p", 4096), ("p", None), ("q", 2048)]),
    ],
)
def test_who_would_refuse_the_same_prompt_is_not_asked(
    own: int | None, told: int | None, alike: list[tuple[str, int | None]]
) -> None:
    """Known contexts that are no longer, and the like of it in its pool, whatever was declared of them."""
    every = [
        Held(context, plan=Pool(name))
        for name, context in (("p", 32768), ("p", 4096), ("p", None), ("q", 2048), ("q", 9000), ("q", None))
    ]
    error = refused() if told is None else refused(context_tokens=told)
    found = as_short(cast("Endpoint", Held(own)), error, [cast("Endpoint", one) for one in every])
    assert [(one.plan.name, one.context_tokens) for one in found] == alike


@pytest.mark.parametrize(
    ("figures", "limit", "tokens"),
    [
        ({"prompt_tokens": 5000, "context_tokens": 4096}, None, 5000),
        ({"context_tokens": 4096}, None, 4096),
        ({"context_tokens": 4096}, 96, 4001),
        ({"context_tokens": 4096}, 5000, 100),
        ({}, None, 8192),
    ],
)
def test_what_an_engine_has_counted_corrects_the_estimate(
    figures: dict[str, int], limit: int | None, tokens: int
) -> None:
    """From then on the request is known to need more than the context that it did not fit."""
    request = asked(100, limit=limit)
    note_too_long(request, held(8192)[0], refused(**figures))
    assert request.estimated_input_tokens == tokens
    assert needed_tokens(request) > figures.get("context_tokens", 8192)
    several = asked(100, dialect=ApiDialect.EMBEDDINGS)
    note_too_long(several, held(8192)[0], refused(**figures))
    assert several.estimated_input_tokens == 100


def test_an_api_is_lacked_by_all_of_a_kind() -> None:
    """The same engine with the same model has it as little; another engine, model or kind of work may have it."""
    pools = [Pool(), Pool("q"), Pool(model="n"), Pool(engine="sglang"), Pool(embeddings=True)]
    every = [cast("Endpoint", Held(None, plan=pool)) for pool in pools]
    assert list(without_path(every[0], every)) == every[:2]
