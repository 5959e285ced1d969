"""Frames: whole ones are found, broken ones are skipped and counted."""

from headrace.ledger.frames import FrameKind, decode_loss, encode_frame, encode_loss, scan_frames

RECORD = b"\x93\x01\x02\x03"


def test_frames_are_read_back_in_order():
    """Two frames in a buffer are two frames."""
    buffer = encode_frame([RECORD, RECORD]) + encode_loss(7)
    scan = scan_frames(buffer, is_end=False)
    assert [frame.kind for frame in scan.frames] == [FrameKind.RECORDS, FrameKind.LOSS]
    assert decode_loss(scan.frames[1]) == 7
    assert (scan.consumed, scan.torn) == (len(buffer), 0)


def test_an_unfinished_frame_is_waited_for_while_its_writer_lives():
    """The reader may come in the middle of a write."""
    whole = encode_frame([RECORD])
    scan = scan_frames(whole + whole[:-1], is_end=False)
    assert (len(scan.frames), scan.consumed, scan.torn) == (1, len(whole), 0)


def test_an_unfinished_frame_at_the_end_is_lost_alone():
    """After kill -9, what was written whole counts, and the rest is reported."""
    whole = encode_frame([RECORD])
    scan = scan_frames(whole + whole[:-1], is_end=True)
    assert (len(scan.frames), scan.torn) == (1, len(whole) - 1)


def test_a_broken_frame_in_the_middle_costs_only_itself():
    """A bad sector does not hide the frames behind it."""
    whole = encode_frame([RECORD])
    broken = bytearray(whole)
    broken[-1] ^= 0xFF
    scan = scan_frames(whole + bytes(broken) + whole, is_end=True)
    assert (len(scan.frames), scan.consumed, scan.torn) == (2, 3 * len(whole), len(whole))


def test_an_empty_buffer_holds_nothing():
    """A file just opened is no error."""
    scan = scan_frames(b"", is_end=True)
    assert (scan.frames, scan.consumed, scan.torn) == ((), 0, 0)
