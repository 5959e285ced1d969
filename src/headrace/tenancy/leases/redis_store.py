"""The book in Redis or Valkey: several gateways share through one atomic script, one round trip an exchange.

Redis' own clock decides; the gateways' clocks may be wrong. Needs the extra `redis`.
"""

import asyncio
import hashlib
import secrets
from importlib.resources import files
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from headrace.domain.undecodable import UNDECODABLE
from headrace.tenancy.leases.exchange import Exchange, ExchangeReply, StoreLostError

SCRIPT = files("headrace.tenancy.leases").joinpath("exchange.lua").read_bytes()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ExchangeReply).decode


class RedisStore:
    """Implements `LeaseStore`.

    `member_s`: a member that has not been heard of for so long is dead, and what it held is free.
    """

    def __init__(self, url: str, *, namespace: str, member_s: float, timeout_s: float, script: bytes = SCRIPT) -> None:
        self._timeout_s = timeout_s
        self._member_s = repr(member_s).encode()
        self._key = f"{{headrace:{namespace}}}:book".encode()  # the braces keep all keys in one slot of a cluster
        self._script = script
        self._digest = hashlib.sha1(script, usedforsecurity=False).hexdigest()
        self._client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType] (its **kwargs has no type)
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
            max_connections=2,
        )

    async def exchange(self, message: Exchange) -> ExchangeReply:
        arguments = (1, self._key, _encode(message), self._member_s, secrets.token_hex(8))
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    answer: bytes = await self._client.evalsha(self._digest, *arguments)
                except NoScriptError:
                    answer = await self._client.eval(self._script, *arguments)
            return _decode(answer)
        except (*UNDECODABLE, RedisError, OSError, TimeoutError) as error:
            raise StoreLostError(f"Redis: {type(error).__name__}: {error}") from error

    async def close(self) -> None:
        await self._client.aclose()
