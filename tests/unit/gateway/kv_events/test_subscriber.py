"""An engine's events over real sockets: as they come, missed and asked for again, and after a restart."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec
import pytest
import structlog.testing
import zmq
import zmq.asyncio
from tests.harness.ports import free_port
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.engines.contract import EVENT_PORT_OFFSET, REPLAY_PORT_OFFSET
from headrace.gateway.kv_events import subscriber as subscribing
from headrace.gateway.kv_events.core.book import CacheBook
from headrace.gateway.kv_events.subscriber import Subscriber, context

BOUND_S = 20


def settings_at(port: int, *, replays: bool = True) -> str:
    """What a launch line says of an engine on `port`."""
    at = {"endpoint": f"tcp://[::ffff:127.0.0.1]:{port + EVENT_PORT_OFFSET}"}
    if replays:
        at["replay_endpoint"] = f"tcp://127.0.0.1:{port + REPLAY_PORT_OFFSET}"
    return json.dumps(at)


def engine_port() -> int:
    """A port whose derived ones are ports too."""
    return free_port(EVENT_PORT_OFFSET, REPLAY_PORT_OFFSET)


@contextlib.asynccontextmanager
async def following(port: int, on_change: Callable[[], None] = lambda: None) -> AsyncIterator[CacheBook]:
    book = CacheBook()
    zmq_context = context()
    follower = Subscriber(
        zmq_context, host="127.0.0.1", port=port, rank=0, book=book, on_change=on_change
    )  # fmt: skip
    task = asyncio.get_running_loop().create_task(follower.run())
    try:
        yield book
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        zmq_context.destroy(linger=0)


async def complete(client: httpx.AsyncClient, prompt: str) -> None:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "stream": False}
    assert (await client.post("/v1/completions", json=body)).status_code == 200


async def until_heard(client: httpx.AsyncClient, book: CacheBook, messages: int = 1) -> None:
    """Ask for new text until the book has heard more messages: a subscription takes a moment."""
    wanted = book.messages + messages
    async with asyncio.timeout(BOUND_S):
        for turn in range(10_000):
            if book.messages >= wanted:
                return
            await complete(client, f"{turn} and {id(book)} is a new prompt " * 8)
            await asyncio.sleep(0.02)


async def test_the_cache_is_known_though_the_gateway_came_later():
    """What was stored before it listened is asked for again, so that the counts equal the engine's own."""
    port = engine_port()
    async with serving(simulated(kv_events=settings_at(port))) as (service, client):
        await complete(client, "stored before anybody listened " * 40)
        async with following(port) as book:
            await until_heard(client, book)
            assert service.engine.findable_blocks * service.config.engine.kv.block_tokens == book.held_tokens()
            assert (book.missed, book.malformed) == (0, 0)
            assert book.replayed >= 1


async def test_messages_that_were_lost_are_asked_for_again():
    """Three messages do not arrive; the next one shows it, and none is missing afterwards."""
    port = engine_port()
    async with serving(simulated(kv_events=settings_at(port))) as (service, client), following(port) as book:
        await until_heard(client, book)
        replayed = book.replayed
        assert (await client.post("/sim/kv-events", json={"lose": 3})).status_code == 200
        await until_heard(client, book, 4)
        assert book.replayed >= replayed + 3
        assert service.engine.findable_blocks * service.config.engine.kv.block_tokens == book.held_tokens()


async def test_an_engine_without_replay_is_not_known_until_it_clears(monkeypatch):
    """What was missed stays missing and is said to be; a cleared cache is known again."""
    monkeypatch.setattr(subscribing, "REPLAY_S", 0.1)
    port = engine_port()
    async with serving(simulated(kv_events=settings_at(port, replays=False))) as (service, client):
        await complete(client, "stored before anybody listened " * 40)
        async with following(port) as book:
            await until_heard(client, book)
            assert book.held_tokens() is None
            assert book.missed >= 1
            service.clear_cache()
            await until_heard(client, book, 2)
            assert book.clears == 1
            assert service.engine.findable_blocks * service.config.engine.kv.block_tokens == book.held_tokens()


@pytest.mark.parametrize("before", [3, 8])
async def test_a_restarted_engine_begins_with_an_empty_cache(before: int):
    """The same port, another process: whether its numbers are lower or higher by then, the counts are its own."""
    port = engine_port()
    async with following(port) as book:
        for messages in (before, 4):
            async with serving(simulated(kv_events=settings_at(port))) as (service, client):
                await until_heard(client, book, messages)
                assert service.engine.findable_blocks * service.config.engine.kv.block_tokens == book.held_tokens()


async def test_what_is_no_message_is_counted():
    """Something else that publishes there changes nothing that is known."""
    port = engine_port()
    with zmq.Context() as plain, plain.socket(zmq.PUB) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.bind(f"tcp://127.0.0.1:{port + EVENT_PORT_OFFSET}")
        async with following(port) as book, asyncio.timeout(BOUND_S):
            while book.malformed < 3:
                stranger.send_multipart([b"", b"hello"])
                stranger.send_multipart([b"", (0).to_bytes(8, "big"), b"hello"])
                await asyncio.sleep(0.02)
            assert book.held_tokens() is None


WILD_NUMBERS = [(-5).to_bytes(8, "big", signed=True), b"\xff" * 8, (2**62).to_bytes(8, "big"), b"\x80" + bytes(7)]
STORED_ONE = msgspec.msgpack.encode([1.0, [{"type": "BlockStored", "block_hashes": [7], "block_size": 16}]])
CLEARED = msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}]])


async def test_wild_numbers_do_not_end_the_following():
    """After numbers that none can be, what an engine says next is heard and counted as before."""
    port = engine_port()
    with zmq.Context() as plain, plain.socket(zmq.PUB) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.bind(f"tcp://127.0.0.1:{port + EVENT_PORT_OFFSET}")
        async with following(port) as book, asyncio.timeout(BOUND_S):
            number = 0
            while not (book.malformed >= 8 and book.clears):
                for wild in WILD_NUMBERS:
                    stranger.send_multipart([b"", wild, CLEARED])
                stranger.send_multipart([b"", number.to_bytes(8, "big"), CLEARED])
                number += 1
                await asyncio.sleep(0.02)
            while book.held_tokens() != 32:
                stranger.send_multipart([b"", number.to_bytes(8, "big"), CLEARED])
                stranger.send_multipart([b"", (number + 1).to_bytes(8, "big"), STORED_ONE])
                stranger.send_multipart([b"", (number + 2).to_bytes(8, "big"), STORED_ONE])
                number += 3
                await asyncio.sleep(0.02)


async def test_a_bug_of_ours_costs_one_message():
    """Whatever goes wrong with a message, the next ones are heard, and the counts are unknown until a fresh start."""
    port = engine_port()
    turns = iter([OverflowError("a bug")])

    def stumble() -> None:
        if (bug := next(turns, None)) is not None:
            raise bug

    with zmq.Context() as plain, plain.socket(zmq.PUB) as stranger, structlog.testing.capture_logs() as logs:
        stranger.setsockopt(zmq.LINGER, 0)
        stranger.bind(f"tcp://127.0.0.1:{port + EVENT_PORT_OFFSET}")
        async with following(port, stumble) as book, asyncio.timeout(BOUND_S):
            number = 0
            while book.messages < 3:
                stranger.send_multipart([b"", number.to_bytes(8, "big"), CLEARED])
                number += 1
                await asyncio.sleep(0.02)
            assert (book.malformed, book.is_whole) == (1, True)
    assert [line["log_level"] for line in logs] == ["error"]
