"""KV cache events of simulated engines: over real sockets, in the engines' own forms."""

import json
from typing import Any

import httpx
import msgspec
import pytest
import zmq
import zmq.asyncio
from tests.harness.ports import free_port
from tests.harness.simulated_engine import MODEL, serving, simulated

from headrace.domain.operator_error import OperatorError
from headrace.engines.simulated.config import DialectKind
from headrace.engines.simulated.kv_events import CacheChange, CacheLog
from headrace.engines.simulated.service import Service


async def complete(client: httpx.AsyncClient, prompt: str) -> None:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "stream": False}
    assert (await client.post("/v1/completions", json=body)).status_code == 200


def test_changes_follow_the_counts():
    """What is findable and was evicted becomes names stored and removed; a clearing leaves what is still used."""
    log = CacheLog()
    assert log.note(0, 0) is None
    assert log.note(3, 0) == CacheChange(stored=[1, 2, 3])
    assert log.note(3, 2) == CacheChange(removed=[1, 2], stored=[4, 5])
    assert log.note(1, 2) == CacheChange(removed=[3, 4])
    assert log.note(1, 9, is_cleared=True) == CacheChange(is_cleared=True, stored=[6])
    assert log.note(1, 9) is None


@pytest.mark.parametrize("dialect", [DialectKind.VLLM, DialectKind.SGLANG])
async def test_what_is_stored_and_cleared_is_published(dialect: DialectKind):
    """A subscriber gets topic, number and batch; what it missed is given again."""
    events_at, replay_at = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    settings = {"endpoint": events_at.replace("127.0.0.1", "[::ffff:127.0.0.1]"), "replay_endpoint": replay_at}
    config = simulated(dialect, kv_events=json.dumps({**settings, "topic": "kv"}))
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as subscriber, context.socket(zmq.DEALER) as asker:
        subscriber.setsockopt(zmq.SUBSCRIBE, b"kv")
        subscriber.setsockopt(zmq.RCVTIMEO, 20_000)
        asker.setsockopt(zmq.RCVTIMEO, 20_000)
        async with serving(config) as (service, client):
            await complete(client, "before anybody listens " * 40)
            subscriber.connect(events_at)
            asker.connect(replay_at)
            await asker.send_multipart([b"", (0).to_bytes(8, "big")])
            replayed = await _until_end(asker)
            assert [number for number, _ in replayed][:1] == [0]
            stored = [event for _, batch in replayed for event in batch[1]]
            assert {"BlockStored"} == {event["type"] for event in stored}
            blocks = sum(len(event["block_hashes"]) for event in stored)
            assert blocks == service.engine.findable_blocks > 0
            topic, _, payload = await _next(subscriber, service)
            assert topic == b"kv"
            assert msgspec.msgpack.decode(payload)[1][0] == {"type": "AllBlocksCleared"}


async def _next(subscriber: zmq.asyncio.Socket, service: Service) -> list[bytes]:
    """Clear the cache until the subscriber, which may still be connecting, hears of it."""
    while True:
        service.clear_cache()
        if await subscriber.poll(50):
            return await subscriber.recv_multipart()


async def _until_end(asker: zmq.asyncio.Socket) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    while True:
        *_, number, payload = await asker.recv_multipart()
        if not payload:
            assert number == (-1).to_bytes(8, "big", signed=True)
            return found
        found.append((int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)))


async def test_tensorrt_llm_hands_each_event_out_once():
    """The first is the cache's size; asking again gives nothing."""
    config = simulated(DialectKind.TENSORRT_LLM, kv_events="{}")
    async with serving(config) as (service, client):
        await complete(client, "a prompt of some blocks " * 40)
        events = (await client.post("/kv_cache_events")).json()
        assert list(range(len(events))) == [event["event_id"] for event in events]
        assert [event["data"]["type"] for event in events][:2] == ["created", "stored"]
        blocks = sum(len(event["data"].get("blocks", [])) for event in events)
        assert blocks == service.engine.findable_blocks > 0
        assert (await client.post("/kv_cache_events")).json() == []


async def test_an_engine_that_tells_none_has_none():
    """TensorRT-LLM keeps no events unless told to; nothing can be lost of what is not published."""
    async with serving(simulated(DialectKind.TENSORRT_LLM)) as (_, client):
        await complete(client, "a prompt " * 40)
        assert (await client.post("/kv_cache_events")).json() == []
        assert (await client.post("/sim/kv-events", json={"lose": 1})).status_code == 404


@pytest.mark.parametrize("told", ["{", '{"endpoint": 5}', '{"endpoint": "tcp://*:x"}'])
def test_settings_that_make_no_sense_are_refused(told: str):
    """The engine does not start without its events."""
    with pytest.raises(OperatorError, match="KV events"):
        Service(simulated(kv_events=told), die=lambda _: None)
