import asyncio

import pytest

from headrace.tenancy.leases.exchange import MESSAGE_BYTES, Exchange
from headrace.tenancy.leases.frames import FrameError, read_frame, to_frame


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def test_a_message_comes_back_as_it_was() -> None:
    """What one end sends the other reads, one after the other."""
    first, second = Exchange("a", 1, "", 0, ()), Exchange("a", 2, "g", 3, ())
    reader = reader_of(to_frame(first) + to_frame(second))
    assert await read_frame(reader, Exchange) == first
    assert await read_frame(reader, Exchange) == second


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ((MESSAGE_BYTES + 1).to_bytes(4, "big"), "at most"),
        (b"\0\0\0\2hi", "not a message"),
        (b"\0\0\0\1\x93", "not a message"),
    ],
)
async def test_what_is_no_message_is_refused(data: bytes, why: str) -> None:
    """A frame that is too long is not read at all, and one of another shape is named."""
    with pytest.raises(FrameError, match=why):
        await read_frame(reader_of(data), Exchange)
