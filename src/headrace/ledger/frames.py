"""How records lie in a journal file: frames of `magic, payload length, CRC-32`, then the payload. Pure.

A records frame's payload is one msgpack array of records. A loss frame's payload is the number of records its writer
has dropped so far. What does not check is skipped to the next frame that does, and its bytes are counted.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from zlib import crc32

import msgspec

_HEADER = struct.Struct("<4sII")
_ARRAY_HEADER = struct.Struct(">BI")
_ARRAY32 = 0xDD
"""msgpack's marker of an array whose length takes 32 bits. Source: the msgpack specification, "array format family"."""


class FrameKind(Enum):
    """What a frame holds; the value is its magic."""

    RECORDS = b"HRJ1"
    LOSS = b"HRL1"


_MAGICS = frozenset(kind.value for kind in FrameKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One whole, checked frame."""

    kind: FrameKind
    payload: bytes
    end: int
    """Offset just behind it, within the scanned buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a buffer held."""

    frames: tuple[Frame, ...]
    consumed: int
    """Bytes that need not be read again."""
    torn: int
    """Bytes among them that belonged to no whole frame."""


def encode_frame(records: Sequence[bytes]) -> bytes:
    """Join encoded records (`record.encode_record`) to one frame."""
    return _seal(FrameKind.RECORDS, _ARRAY_HEADER.pack(_ARRAY32, len(records)) + b"".join(records))


def encode_loss(dropped: int) -> bytes:
    """Frame that says how many records its writer has dropped since it began."""
    return _seal(FrameKind.LOSS, msgspec.msgpack.encode(dropped))


def decode_loss(frame: Frame) -> int:
    """Read what `encode_loss` wrote."""
    return msgspec.msgpack.decode(frame.payload, type=int)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameHead:
    """What the first HEAD_BYTES of a frame say about it."""

    records: int
    end: int
    """Offset just behind the frame, from its start."""


HEAD_BYTES = _HEADER.size + _ARRAY_HEADER.size


def find_head(start: bytes) -> FrameHead | None:
    """Read a frame's head, unchecked; None where `start` is no frame's."""
    if len(start) < HEAD_BYTES:
        return None
    magic, length, _ = _HEADER.unpack_from(start)
    if magic not in _MAGICS:
        return None
    _, records = _ARRAY_HEADER.unpack_from(start, _HEADER.size)
    return FrameHead(records=records if magic == FrameKind.RECORDS.value else 0, end=_HEADER.size + length)


def scan_frames(buffer: bytes, *, is_end: bool) -> Scan:
    """Take the whole frames from the front of `buffer`.

    `is_end`: the writer is gone and the buffer reaches the end of the file, so that what is incomplete stays so and may
    be skipped. Without it, the scan stops where something is incomplete or broken.
    """
    frames: list[Frame] = []
    at = torn = 0
    while at < len(buffer):
        frame = _find_frame(buffer, at)
        if frame is None:
            if not is_end:
                break
            resumed_at = _next_start(buffer, at + 1)
            torn += resumed_at - at
            at = resumed_at
            continue
        frames.append(frame)
        at = frame.end
    return Scan(frames=tuple(frames), consumed=at, torn=torn)


def _seal(kind: FrameKind, payload: bytes) -> bytes:
    return _HEADER.pack(kind.value, len(payload), crc32(payload)) + payload


def _find_frame(buffer: bytes, at: int) -> Frame | None:
    start = at + _HEADER.size
    if start > len(buffer):
        return None
    magic, length, checksum = _HEADER.unpack_from(buffer, at)
    end = start + length
    if magic not in _MAGICS or end > len(buffer):
        return None
    payload = buffer[start:end]
    if crc32(payload) != checksum:
        return None
    return Frame(kind=FrameKind(magic), payload=payload, end=end)


def _next_start(buffer: bytes, at: int) -> int:
    """Offset of the next whole frame, or the buffer's end."""
    while True:
        found = [where for magic in _MAGICS if (where := buffer.find(magic, at)) >= 0]
        if not found:
            return len(buffer)
        at = min(found)
        if _find_frame(buffer, at) is not None:
            return at
        at += 1
