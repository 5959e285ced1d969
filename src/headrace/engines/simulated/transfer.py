"""KV on its way from a prefill engine to a decode engine, between two simulated engines over HTTP.

The prefill engine holds what a finished prompt left; the decode engine asks for it by key at `POST /sim/kv/<key>`,
which stands for the side channels of the real ones (NIXL, mooncake, UCX). How long the bytes take is up to the model.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from headrace.domain.undecodable import UNDECODABLE

FETCH_TIMEOUT_S = 10.0
"""A prefill engine that does not answer by then is gone. Source: the first handshake of NIXL takes up to 10 s."""

ROOM_TIMEOUT_S = 300.0
"""How long the two legs wait for each other. Source: SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT, _WAITING_TIMEOUT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The prefill leg: compute the prompt and keep its KV under `key`."""

    key: str
    waits_for_fetch: bool = False
    """The answer is given only once the KV was fetched (SGLang)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """The decode leg: KV of the prompt is at another engine."""

    host: str
    port: int
    key: str
    waits_for_hold: bool = False
    """Both legs run at once: wait until the other has computed the prompt (SGLang)."""


class Held(msgspec.Struct):
    """What the other engine is told about the KV that it gets."""

    tokens: int
    size_bytes: int


Taken = Callable[[Held | None], None]


@dataclass(slots=True)
class KvShelf:
    """The KV that this engine holds for others, and who waits for it. Concurrency: the event loop's thread."""

    _held: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """Key -> request id in the engine, tokens."""
    _waiters: dict[str, list[Taken]] = field(default_factory=dict[str, list[Taken]])
    _on_taken: dict[str, Callable[[], None]] = field(default_factory=dict[str, Callable[[], None]])

    def put(self, key: str, request_id: str, tokens: int, on_taken: Callable[[], None] | None = None) -> None:
        self._held[key] = (request_id, tokens)
        if on_taken is not None:
            self._on_taken[key] = on_taken

    def waiters(self, key: str) -> list[Taken]:
        """Those who asked for `key` before it was there."""
        return self._waiters.pop(key, [])

    def wait(self, key: str, taken: Taken) -> None:
        self._waiters.setdefault(key, []).append(taken)

    def take(self, key: str) -> tuple[str, int] | None:
        """Give KV away: request id and tokens."""
        found = self._held.pop(key, None)
        if found is not None and (on_taken := self._on_taken.pop(key, None)):
            on_taken()
        return found

    def prune(self, is_held: Callable[[str], bool]) -> None:
        """Forget what the engine holds no longer: nobody fetched it in time."""
        for key, (request_id, _) in list(self._held.items()):
            if not is_held(request_id):
                self.drop(key)

    def drop(self, key: str) -> None:
        """Forget KV whose request was aborted; who waits for it is told that it will not come."""
        self._held.pop(key, None)
        self._on_taken.pop(key, None)
        for taken in self.waiters(key):
            taken(None)


async def fetch(leg: Fetch) -> Held | None:
    """Ask the other engine for its KV; None where it is gone, unknown or lost."""
    bound_s = ROOM_TIMEOUT_S if leg.waits_for_hold else FETCH_TIMEOUT_S
    try:
        async with asyncio.timeout(bound_s):
            return await _post(leg)
    except (*UNDECODABLE, OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
        return None


async def _post(leg: Fetch) -> Held | None:
    reader, writer = await asyncio.open_connection(leg.host, leg.port)
    try:
        path = f"/sim/kv/{quote(leg.key, safe='')}?wait={int(leg.waits_for_hold)}"
        writer.write(f"POST {path} HTTP/1.1\r\nhost: {leg.host}\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        body = await reader.readexactly(length)
        return msgspec.json.decode(body, type=Held) if " 200 " in head.partition("\r\n")[0] else None
    finally:
        writer.transport.abort()
