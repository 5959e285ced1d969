"""What routing keeps of a request, and what it learns from its end."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest
from tests.harness.running_gateway import declare, remote_pool

from headrace.declaration.gateway_plan import EndpointAddress, compile_gateway_plan
from headrace.declaration.routing_plan import compile_routing
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.placer import SHORT_PROMPT_BYTES, Placement, Placer, Placing

DECLARATION = declare({"p": remote_pool("http://127.0.0.1:9", "http://127.0.0.1:10")})
USAGE = TokenUsage(input_tokens=300, output_tokens=20, cached_input_tokens=0)


@pytest.fixture
def endpoints() -> Iterator[tuple[Endpoint, ...]]:
    """Two of one pool; nobody listens there, and nothing is sent."""
    loop = asyncio.new_event_loop()
    addresses = tuple(EndpointAddress(endpoint=f"p/{port}", url=f"http://127.0.0.1:{port}") for port in (9, 10))
    directory = EndpointDirectory(loop, str)
    directory.adopt(directory.prepare(compile_gateway_plan(DECLARATION, {"p": addresses}, revision=1)))
    yield tuple(directory)
    loop.close()


def make_placer() -> Placer:
    placer = Placer(lambda: b"a secret of the tests, not of an instance")
    placer.adopt(compile_routing(DECLARATION))
    return placer


def asked(prompt_bytes: int, *, is_stream: bool = True) -> InferenceRequest:
    raw = msgspec.json.encode([{"role": "user", "content": "x" * (prompt_bytes - 30)}])
    return InferenceRequest(
        dialect=ApiDialect.CHAT_COMPLETIONS, path=b"/v1/chat/completions", requested_model="m", body=raw,
        fields={"messages": msgspec.Raw(raw)}, is_stream=is_stream, wants_usage=False, output_limit_tokens=None,
        prompt_bytes=len(raw),
    )  # fmt: skip


def send(placer: Placer, request: InferenceRequest, endpoints: tuple[Endpoint, ...]) -> Placement:
    placement = placer.placed(request, placer.pick(request, endpoints))
    assert placement is not None
    return placement


def names_of(request: InferenceRequest) -> int:
    assert isinstance(request.placing, Placing)
    return 0 if request.placing.chain is None else len(request.placing.chain.names)


def test_a_prompt_too_short_to_be_worth_it_is_not_named(endpoints: tuple[Endpoint, ...]) -> None:
    """It goes by load alone; what it leaves in the engine's cache takes its room there all the same."""
    placer = make_placer()
    found = [send(placer, asked(SHORT_PROMPT_BYTES - 100), endpoints) for _ in range(4)]
    assert [sum(each.candidate is one.candidate for each in found) for one in found] == [2, 2, 2, 2]
    for placement in found:
        placement.ended(USAGE, is_answered=True)
    placer.sweep(endpoints, 0.0)
    assert len(placer.index) == 0
    assert all(placement.shelf.held > 2 * (SHORT_PROMPT_BYTES - 150) for placement in found)


def test_a_longer_prompt_goes_where_it_was(endpoints: tuple[Endpoint, ...]) -> None:
    """From some bytes on a prompt is named, and found again at its endpoint."""
    placer = make_placer()
    first, second = asked(SHORT_PROMPT_BYTES + 4000), asked(SHORT_PROMPT_BYTES + 4000)
    placement = send(placer, first, endpoints)
    placement.first_token(placement.claimed_mono_s + 0.1)
    placement.ended(USAGE, is_answered=True)
    assert names_of(first) > 0
    assert send(placer, second, endpoints).candidate is placement.candidate


def test_a_slow_pool_names_shorter_prompts(endpoints: tuple[Endpoint, ...]) -> None:
    """Where a few hundred bytes take long to compute, finding them cached is worth the look."""
    placer = make_placer()
    placement = send(placer, asked(SHORT_PROMPT_BYTES - 100), endpoints)
    placement.candidate.pool.ttft.slope = 0.01
    placer.sweep(endpoints, 0.0)
    request = asked(SHORT_PROMPT_BYTES - 100)
    send(placer, request, endpoints)
    assert names_of(request) > 0


def test_an_attempt_counts_until_its_end_whatever_that_is(endpoints: tuple[Endpoint, ...]) -> None:
    """Whole answers, streams and failures leave nothing in flight, and the request is let go."""
    placer = make_placer()
    for is_stream, usage, is_answered in ((True, USAGE, True), (False, USAGE, True), (True, UNKNOWN_USAGE, False)):
        placement = send(placer, asked(5000, is_stream=is_stream), endpoints)
        assert placement.candidate.in_flight == 1
        placement.ended(usage, is_answered=is_answered)
        assert (placement.candidate.in_flight, placement.candidate.prefill_tokens) == (0, 0.0)
        assert placement.request is None
    (tally,) = placer.tallies.by_tenant.values()
    assert (tally.requests, tally.input_tokens) == (2, 600)


def test_an_explanation_uses_up_nobodys_turn(endpoints: tuple[Endpoint, ...]) -> None:
    """Looking at a choice changes nothing about it."""
    placer = make_placer()
    request = asked(100)
    _, decision = placer.explain(request, endpoints)
    _, again = placer.explain(request, endpoints)
    assert decision.picked is again.picked
    assert placer.candidate_of(placer.pick(request, endpoints)) is decision.picked
