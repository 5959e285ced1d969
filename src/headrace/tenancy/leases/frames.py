"""Exchanges on a Unix socket: MessagePack behind four bytes of length. Both ends use it."""

import asyncio
from typing import TypeVar

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.tenancy.leases.exchange import MESSAGE_BYTES

HEAD_BYTES = 4
Message = TypeVar("Message")
_encode = msgspec.msgpack.Encoder().encode


class FrameError(Exception):
    """What came is no message of ours: too long, or not of the shape."""


def to_frame(message: msgspec.Struct) -> bytes:
    """Encode one message."""
    body = _encode(message)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


async def read_frame(reader: asyncio.StreamReader, shape: type[Message]) -> Message:
    """Read one message.

    Raises: FrameError; asyncio.IncompleteReadError and OSError where the other end is gone.
    """
    length = int.from_bytes(await reader.readexactly(HEAD_BYTES), "big")
    if length > MESSAGE_BYTES:
        raise FrameError(f"a message of {length} bytes; at most {MESSAGE_BYTES} are read")
    try:
        return msgspec.msgpack.decode(await reader.readexactly(length), type=shape)
    except UNDECODABLE as error:
        raise FrameError(f"not a message: {error}") from error
