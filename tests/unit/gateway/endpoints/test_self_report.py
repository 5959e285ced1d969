"""When an engine that hands prompts over is asked what it is: where it can have changed, else rarely."""

import contextlib
from collections.abc import AsyncGenerator

import msgspec
from tests.harness.handover_parts import HandoverParts, half
from tests.harness.told_engine import ToldEngine, says

from headrace.engines.kv_shape import KvShape
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.self_report import AGAIN_S, DOUBT_S, FIRST_RETRY_S, Inquiry

NOWHERE = "http://127.0.0.1:9"
FAULT = b"HTTP/1.1 500 X\r\ncontent-length: 2\r\n\r\n{}"
ABSENT = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"


class Scene:
    """One prefill engine and its inquiry, at a time that the test sets."""

    def __init__(self, server: ToldEngine, endpoint: Endpoint) -> None:
        self.server, self.endpoint, self.now_s = server, endpoint, 1000.0
        self.inquiry = Inquiry(clock=lambda: self.now_s)

    async def asked_after(self, passed_s: float) -> bool:
        """Whether the probe that ends so much later makes it ask."""
        self.now_s += passed_s
        before = self.server.asked
        await self.inquiry.learn(self.endpoint)
        return self.server.asked > before

    @property
    def shape(self) -> KvShape:
        assert self.endpoint.told_shape is not None
        return self.endpoint.told_shape


@contextlib.asynccontextmanager
async def scene(engine: str = "sglang", reply: bytes = b"") -> AsyncGenerator[Scene]:
    server = ToldEngine(reply or says("1.0"))
    async with server.running() as url:
        parts = HandoverParts({"p": half(engine, "prefill", url), "d": half(engine, "decode", NOWHERE)})
        try:
            yield Scene(server, parts["p"])
        finally:
            parts.close()


async def test_what_cannot_change_is_asked_once_and_then_rarely() -> None:
    """SGLang's scheduler answers in person: an engine in order is asked at first contact, and each half minute."""
    async with scene() as seen:
        assert await seen.asked_after(0.0)
        assert (seen.shape.version, seen.shape.block_tokens) == ("1.0", 64)
        assert [await seen.asked_after(2.0) for _ in range(14)] == [False] * 14
        assert await seen.asked_after(AGAIN_S - 28.0)
        assert not await seen.asked_after(AGAIN_S - 0.1)


async def test_an_engine_that_was_away_is_asked_before_it_is_used() -> None:
    """After an outage another engine may be there: what was told is forgotten, and asked for at once."""
    async with scene() as seen:
        await seen.asked_after(0.0)
        seen.server.reply = says("2.0")
        seen.endpoint.outages += 1
        assert await seen.asked_after(0.1)
        assert seen.shape.version == "2.0"


async def test_signs_of_another_process_are_followed_up_soon() -> None:
    """Failed requests, a page of metrics that looks like another process's, a drain: asked within seconds, not more."""
    async with scene() as seen:
        await seen.asked_after(0.0)
        seen.server.reply = says("2.0")
        seen.endpoint.failures += 3
        assert not await seen.asked_after(DOUBT_S - 0.1)
        assert await seen.asked_after(0.1)
        assert seen.shape.version == "2.0"
        assert not await seen.asked_after(DOUBT_S)
        seen.endpoint.load.restarts += 1
        assert await seen.asked_after(0.0)
        for is_draining in (True, False):
            address = msgspec.structs.replace(seen.endpoint.address, is_draining=is_draining)
            seen.endpoint.adopt(seen.endpoint.plan, address)
            assert await seen.asked_after(DOUBT_S)


async def test_an_engine_without_an_answer_is_bothered_less_and_less() -> None:
    """It stays what it was; one that never told is asked soon at first, and a sign is followed up until it answers."""
    async with scene(reply=FAULT) as seen:
        pauses = [0.0, FIRST_RETRY_S, 2 * FIRST_RETRY_S, 4 * FIRST_RETRY_S]
        assert [await seen.asked_after(pause) for pause in pauses] == [True] * 4
        assert seen.shape.version is None
        for _ in range(6):
            await seen.asked_after(AGAIN_S)
        assert not await seen.asked_after(AGAIN_S - 0.1)
        seen.server.reply = says("1.0")
        assert await seen.asked_after(0.1)
        seen.server.reply, seen.endpoint.failures = FAULT, 1
        assert await seen.asked_after(DOUBT_S)
        assert await seen.asked_after(DOUBT_S)
        assert seen.shape.version == "1.0"


async def test_an_engine_that_has_no_word_for_it_any_more_is_not_known() -> None:
    """No such path is an answer: what is there now is another program."""
    async with scene("vllm") as seen:
        await seen.asked_after(0.0)
        seen.server.reply = ABSENT
        assert await seen.asked_after(AGAIN_S)
        assert seen.shape.version is None


async def test_settings_that_come_later_are_read_without_asking_again() -> None:
    """vLLM shows its KV format on its page of metrics, which is read after the first probe."""
    async with scene("vllm") as seen:
        await seen.asked_after(0.0)
        seen.endpoint.load.settings = {"cache_dtype": "fp8", "block_size": "16"}
        assert not await seen.asked_after(0.1)
        assert (seen.shape.version, seen.shape.kv_dtype, seen.shape.block_tokens) == ("1.0", "fp8", 16)
