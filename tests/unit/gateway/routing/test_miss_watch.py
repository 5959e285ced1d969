"""The watch over cache misses: what it looks at, and what it may cost."""

import asyncio
import gc
import types
from collections.abc import Iterator

import msgspec
import pytest
from tests.harness.running_gateway import declare, remote_pool

from headrace.declaration.gateway_plan import EndpointAddress, compile_gateway_plan
from headrace.declaration.model import Declaration
from headrace.declaration.routing_plan import compile_routing
from headrace.domain.miss_status import MissCause
from headrace.domain.request import ApiDialect, InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing import miss_watch
from headrace.gateway.routing.miss_watch import MissWatch

DECLARATION: Declaration = declare({"p": remote_pool("http://127.0.0.1:9")})
CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinMethodType)
TEXT = "Der Kanarienvogel sitzt neben dem Wehr und singt. Wer ihn hoert, der bleibt stehen. " * 8


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """One that a plan declares; nobody listens there, and nothing is sent."""
    loop = asyncio.new_event_loop()
    try:
        yield make_endpoint(loop)
    finally:
        loop.close()


def make_endpoint(loop: asyncio.AbstractEventLoop) -> Endpoint:
    address = EndpointAddress(endpoint="p/0", url="http://127.0.0.1:9")
    plan = compile_gateway_plan(DECLARATION, {"p": (address,)}, revision=1)
    directory = EndpointDirectory(loop, str)
    directory.adopt(directory.prepare(plan))
    return next(iter(directory))


def watch() -> MissWatch:
    made = MissWatch(lambda: b"a secret of the tests, not of an instance")
    made.adopt(compile_routing(DECLARATION))
    return made


def asked(number: int) -> InferenceRequest:
    messages = [{"role": "system", "content": f"Es ist 2026-11-{number % 20 + 10}. {TEXT}"}]
    raw = msgspec.json.encode(messages)
    return InferenceRequest(
        dialect=ApiDialect.CHAT_COMPLETIONS, path=b"/v1/chat/completions", requested_model="m", body=raw,
        fields={"messages": msgspec.Raw(raw)}, is_stream=False, wants_usage=False, output_limit_tokens=None, tenant="t",
    )  # fmt: skip


MISSED = TokenUsage(input_tokens=180, output_tokens=1, cached_input_tokens=0)


def test_a_miss_is_explained_and_nothing_is_kept_of_its_text(endpoint: Endpoint) -> None:
    """Three days, one prompt: the date is named; no word of the prompt can be reached from the watch."""
    seen = watch()
    for number in range(4):
        seen.note(asked(number), endpoint, MISSED, float("inf"))
    status = seen.status()
    assert [(row.cause, row.requests) for row in status.rows] == [(MissCause.TIMESTAMP, 3)]
    assert (status.answers, status.examined, status.explained) == (4, 4, 3)
    assert seen.by_cause == {"timestamp": (3, status.rows[0].tokens_lost)}
    waiting: list[object] = [seen, status]
    known: set[int] = set()
    texts = 0
    while waiting:
        each = waiting.pop()
        if id(each) in known or isinstance(each, CODE):
            continue
        known.add(id(each))
        waiting.extend(gc.get_referents(each))
        if isinstance(each, str | bytes):
            raw = each.encode() if isinstance(each, str) else each
            texts += 1
            assert b"anarienvogel" not in raw
            assert b"Wehr" not in raw
    assert texts > 20


def test_a_prompt_sent_before_the_other_was_answered_is_no_miss(endpoint: Endpoint) -> None:
    """Requests at once could not have found each other's KV."""
    seen = watch()
    for number in range(6):
        seen.note(asked(number), endpoint, MISSED, 0.0)
    assert (seen.status().examined, seen.status().explained) == (6, 0)


def test_what_does_not_tell_its_cached_tokens_is_not_looked_at(endpoint: Endpoint) -> None:
    """Nor is a model for which it is switched off."""
    seen = watch()
    seen.note(asked(1), endpoint, TokenUsage(input_tokens=180, output_tokens=1), 0.0)
    seen.adopt({})
    seen.note(asked(2), endpoint, MISSED, 0.0)
    assert (seen.status().answers, seen.status().kept_bytes) == (0, 0)


def test_an_engine_that_never_tells_is_asked_now_and_then(endpoint: Endpoint) -> None:
    """Watching costs every request a little; once the engine tells after all, everything is looked at again."""
    seen = watch()
    silent = TokenUsage(input_tokens=180, output_tokens=1)

    def answered(usage: TokenUsage) -> bool:
        attempt = seen.watch(asked(1), endpoint)
        if attempt is not None:
            attempt.ended(usage, is_answered=True)
        return attempt is not None

    assert [answered(silent) for _ in range(miss_watch.SILENT_ANSWERS)] == [True] * miss_watch.SILENT_ANSWERS
    assert sum(answered(silent) for _ in range(3 * miss_watch.ASK_EVERY)) == 3
    assert any(answered(MISSED) for _ in range(miss_watch.ASK_EVERY))
    assert all(answered(MISSED) for _ in range(5))
    assert seen.status().answers == 6


def test_cpu_is_bounded(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing saved up, answers that come one after the other are not all looked at."""
    monkeypatch.setattr(miss_watch, "CPU_BURST_S", 0.0)
    seen = watch()
    for number in range(200):
        seen.note(asked(number), endpoint, MISSED, float("inf"))
    status = seen.status()
    assert status.answers == 200
    assert 1 <= status.examined < 100
