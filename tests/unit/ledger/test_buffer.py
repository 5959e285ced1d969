"""The bounded buffer at its bound, and that what is not written stays."""

import pytest

from headrace.ledger.buffer import RecordBuffer


@pytest.mark.parametrize(("offered", "held", "dropped"), [(0, 0, 0), (1, 1, 0), (4, 4, 0), (5, 4, 1), (9, 4, 5)])
def test_records_over_the_bound_are_dropped_and_counted(offered, held, dropped):
    """Memory stays bounded whatever the disk does."""
    buffer = RecordBuffer(4)
    for number in range(offered):
        buffer.append(bytes([number]))
    assert (len(buffer), buffer.dropped) == (held, dropped)
    assert buffer.peek(9) == [bytes([number]) for number in range(held)]


def test_the_writer_is_woken_when_half_full():
    """A small buffer under load is written before it overflows."""
    woken: list[int] = []
    buffer = RecordBuffer(4)
    buffer.on_half_full(lambda: woken.append(len(buffer)))
    for _ in range(3):
        buffer.append(b"x")
    assert woken == [2]


def test_records_leave_only_when_removed():
    """Peeking is no writing."""
    buffer = RecordBuffer(4)
    buffer.append(b"a")
    buffer.append(b"b")
    assert (buffer.peek(1), buffer.peek(1)) == ([b"a"], [b"a"])
    buffer.remove(1)
    assert buffer.peek(1) == [b"b"]


def test_giving_up_counts_what_was_there():
    """The drop counter is exact."""
    buffer = RecordBuffer(4)
    buffer.append(b"a")
    buffer.drop(3)
    assert (len(buffer), buffer.dropped) == (0, 1)
