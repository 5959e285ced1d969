"""The simulated engine's KV cache events: over ZeroMQ as vLLM and SGLang publish them, or kept until TensorRT-LLM's
path is asked. Counts are the model's own after each step; blocks have names of no meaning.

Sources: vllm/distributed/kv_events.py 0.32, sglang/srt/disaggregation/kv_events.py 0.5.23, tensorrt_llm/_utils.py.
"""

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from headrace.domain.operator_error import OperatorError
from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.config import DialectKind, EngineConfig
from headrace.extras import Extra, install_hint, missing_text
from headrace.simulation.engine import SimulatedEngine

KEPT_MESSAGES = 10_000
"""For who missed them. Source: `buffer_steps`, both engines."""
KEPT_EVENTS = 1024
"""TensorRT-LLM's `event_buffer_max_size`, as headrace sets it; older ones are dropped."""
END_NUMBER = (-1).to_bytes(8, "big", signed=True)


class EventSettings(msgspec.Struct, frozen=True):
    """`--kv-events-config`, as far as it is followed. TensorRT-LLM has no sockets: only that there is one counts."""

    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    topic: str = ""


@dataclass(slots=True)
class CacheChange:
    """What one step changed, in this order: all forgotten, blocks removed, blocks stored."""

    is_cleared: bool = False
    removed: list[int] = field(default_factory=list[int])
    stored: list[int] = field(default_factory=list[int])


class CacheLog:
    """Makes changes of the model's counts."""

    def __init__(self) -> None:
        self._names = count(1)
        self._held: deque[int] = deque()
        self._evicted = 0

    def note(self, findable_blocks: int, evicted_blocks: int, *, is_cleared: bool = False) -> CacheChange | None:
        """None: nothing changed. `evicted_blocks` is a counter, from which a clearing is left out."""
        change = CacheChange(is_cleared=is_cleared)
        removed = 0 if is_cleared else evicted_blocks - self._evicted
        self._evicted = evicted_blocks
        if is_cleared:
            self._held.clear()
        stored = findable_blocks - len(self._held) + removed
        if stored < 0:
            removed, stored = removed - stored, 0
        change.removed = [self._held.popleft() for _ in range(min(removed, len(self._held)))]
        change.stored = [next(self._names) for _ in range(max(stored, findable_blocks - len(self._held)))]
        self._held += change.stored
        return change if change.is_cleared or change.removed or change.stored else None


class Publisher:
    """A PUB socket, and a ROUTER for those that missed something. `lost_next` messages are not sent, only kept."""

    def __init__(self, config: EngineConfig, settings: EventSettings) -> None:
        import zmq
        import zmq.asyncio

        self._is_sglang = config.dialect is DialectKind.SGLANG
        self._block_tokens = config.engine.kv.block_tokens
        self._topic = settings.topic.encode()
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=KEPT_MESSAGES)
        self._numbers = count()
        self.lost_next = 0
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._router: zmq.asyncio.Socket | None = None
        try:
            _attach(self._pub, settings.endpoint)
            if settings.replay_endpoint is not None:
                self._router = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
                self._router.bind(settings.replay_endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OperatorError(f"cannot publish KV events at {settings.endpoint}: {error}") from error

    def put(self, change: CacheChange) -> None:
        number = next(self._numbers).to_bytes(8, "big")
        stamp = time.time()  # noqa: TID251 # a timestamp in the message
        payload = msgspec.msgpack.encode([stamp, self._events(change), 0])
        self._kept.append((number, payload))
        if self.lost_next:
            self.lost_next -= 1
        else:
            self._pub.send_multipart((self._topic, number, payload))

    async def serve(self) -> None:
        while self._router is not None:
            frames = await self._router.recv_multipart()
            if len(frames) != 3:
                continue
            start = int.from_bytes(frames[2], "big")
            for number, payload in list(self._kept):
                if int.from_bytes(number, "big") >= start:
                    await self._answer([frames[0], b"", self._topic, number, payload])
            await self._answer([frames[0], b"", b"", END_NUMBER, b""])

    async def _answer(self, frames: list[bytes]) -> None:
        assert self._router is not None
        await self._router.send_multipart(frames)  # pyright: ignore[reportUnknownMemberType] # its list has no type

    def close(self) -> None:
        if self._router is not None:
            self._router.close(linger=0)
        self._pub.close(linger=0)
        self._context.term()

    def _events(self, change: CacheChange) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = [{"type": "AllBlocksCleared"}] if change.is_cleared else []
        if self._is_sglang:  # an event for each page
            events += [{"type": "BlockRemoved", "block_hashes": [name], "medium": "GPU"} for name in change.removed]
            events += [self._stored([name], name - 1) for name in change.stored]
            return events
        if change.removed:
            names = [_hash(name) for name in change.removed]
            events.append({"type": "BlockRemoved", "block_hashes": names, "medium": "GPU"})
        if change.stored:
            names = [_hash(name) for name in change.stored]
            events.append(self._stored(names, None) | {"lora_name": None})
        return events

    def _stored(self, names: list[Any], parent: int | None) -> dict[str, Any]:
        return {
            "type": "BlockStored",
            "block_hashes": names,
            "parent_block_hash": parent,
            "token_ids": [0] * (len(names) * self._block_tokens),
            "block_size": self._block_tokens,
            "lora_id": None,
            "medium": "GPU",
        }


class PolledEvents:
    """What `POST /kv_cache_events` hands out, once."""

    def __init__(self, config: EngineConfig) -> None:
        self._block_tokens = config.engine.kv.block_tokens
        self._numbers = count()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=KEPT_EVENTS)
        self._add({"type": "created", "num_blocks_per_cache_level": [config.engine.kv.total_blocks, 0]})

    def put(self, change: CacheChange) -> None:
        if change.removed:
            self._add({"type": "removed", "block_hashes": change.removed})
        if change.stored:
            self._add({"type": "stored", "parent_hash": None, "blocks": [self._block(name) for name in change.stored]})

    def take(self) -> list[dict[str, Any]]:
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _block(self, name: int) -> dict[str, Any]:
        token = {"type": "unique_token", "token_id": 0, "token_extra_id": 0}
        tokens = [token] * self._block_tokens
        return {"type": "stored_block", "block_hash": name, "tokens": tokens, "cache_level": 0, "priority": 35}

    def _add(self, told: dict[str, Any]) -> None:
        self._waiting.append({"event_id": next(self._numbers), "data": told, "window_size": 0})


class CacheTeller:
    """Looks at the model after each step, and tells what changed in its cache. Raises at its making: OperatorError."""

    def __init__(self, config: EngineConfig, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._log = CacheLog()
        self._sink = _make_sink(config)

    def tell(self, *, is_cleared: bool = False) -> None:
        engine = self._engine
        change = self._log.note(engine.findable_blocks, engine.evicted_blocks, is_cleared=is_cleared)
        if change is not None:
            self._sink.put(change)

    def take(self) -> list[dict[str, object]]:
        """What TensorRT-LLM hands out once."""
        return self._sink.take() if isinstance(self._sink, PolledEvents) else []

    def lose(self, messages: int) -> bool:
        """Do not send the next messages; False: none are sent anyway."""
        if not isinstance(self._sink, Publisher):
            return False
        self._sink.lost_next = messages
        return True

    async def serve(self) -> None:
        """Answer who asks again, until cancelled."""
        if isinstance(self._sink, Publisher):
            await self._sink.serve()

    def close(self) -> None:
        if isinstance(self._sink, Publisher):
            self._sink.close()


def _make_sink(config: EngineConfig) -> Publisher | PolledEvents:
    if config.dialect in (DialectKind.TENSORRT_LLM, DialectKind.TRITON):
        return PolledEvents(config)
    try:
        settings = msgspec.json.decode(config.kv_events or "{}", type=EventSettings)
        return Publisher(config, settings)
    except UNDECODABLE as error:
        raise OperatorError(f"the configuration of KV events makes no sense: {error}") from error
    except ImportError as error:
        missing = missing_text("--kv-events-config", Extra.KV_EVENTS)
        raise OperatorError(missing, hint=install_hint(Extra.KV_EVENTS)) from error


def _attach(socket: Any, endpoint: str) -> None:
    """Listen or connect, by the engines' own rule."""
    listens = "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
    (socket.bind if listens else socket.connect)(endpoint)


def _hash(name: int) -> bytes:
    return name.to_bytes(32, "big")
