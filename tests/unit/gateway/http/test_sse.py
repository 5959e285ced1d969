"""Cutting streams at events, without parsing what is in them."""

import pytest

from headrace.gateway.http.sse import EventCutter, EventTooLargeError, event_field, iter_events


def test_half_an_event_is_kept() -> None:
    """Bytes after the last blank line wait for their end."""
    cutter = EventCutter(100)
    assert cutter.feed(b"data: 1\n\ndata: 2") == b"data: 1\n\n"
    assert cutter.rest == b"data: 2"
    assert cutter.feed(b"\n\n") == b"data: 2\n\n"
    assert cutter.rest == b""


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_an_end_cut_in_two_is_still_an_end(end: bytes) -> None:
    """A blank line may arrive in pieces, whichever line ends the engine uses."""
    for cut in range(1, len(end)):
        cutter = EventCutter(100)
        first = cutter.feed(b"data: 1" + end[:cut])
        assert first + cutter.feed(end[cut:]) == b"data: 1" + end


@pytest.mark.parametrize(("size", "is_refused"), [(9, False), (10, False), (11, True)])
def test_an_endless_event_is_refused(size: int, is_refused: bool) -> None:
    """More than the limit without a blank line ends the stream; the limit itself is allowed."""
    cutter = EventCutter(10)
    if is_refused:
        with pytest.raises(EventTooLargeError):
            cutter.feed(b"x" * size)
    else:
        assert cutter.feed(b"x" * size) == b""


def test_events_joined_are_the_block() -> None:
    """Splitting loses nothing, also where line ends are mixed or the last event has no end."""
    block = b": ping\n\ndata: 1\r\n\r\nevent: x\ndata: 2\n\ndata: half"
    assert iter_events(block) == [b": ping\n\n", b"data: 1\r\n\r\n", b"event: x\ndata: 2\n\n", b"data: half"]
    assert iter_events(b"") == []


@pytest.mark.parametrize(
    ("event", "value"),
    [
        (b"data: 1\n\n", b"1"),
        (b"data:1\n\n", b"1"),
        (b"data:  1\n\n", b" 1"),
        (b"data:\n\n", b""),
        (b"data: 1\ndata: 2\n\n", b"1\n2"),
        (b"event: x\r\ndata: 1\r\n\r\n", b"1"),
        (b": comment\n\n", None),
        (b"database: 1\n\n", None),
    ],
)
def test_a_field_is_read_as_the_standard_says(event: bytes, value: bytes | None) -> None:
    """One space after the colon is dropped, several lines are joined, other names are not taken for it."""
    assert event_field(event, b"data") == value
