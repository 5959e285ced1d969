"""Whatever happens to a journal file's bytes, whole frames are found and nothing is invented."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.ledger.frames import encode_frame, scan_frames
from headrace.ledger.record import decode_rows

_BATCHES = st.lists(st.lists(st.text(max_size=8), min_size=1, max_size=5), min_size=1, max_size=6)


def _frames(batches: list[list[str]]) -> list[bytes]:
    return [encode_frame([msgspec.msgpack.encode([uid]) for uid in batch]) for batch in batches]


@given(_BATCHES, st.data())
def test_a_file_cut_anywhere_keeps_every_whole_frame(batches, data):
    """Cut at any byte, exactly the frames in front of the cut are read, and the rest is counted."""
    frames = _frames(batches)
    whole = b"".join(frames)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, frames[: number + 1])) for number in range(len(frames))]
    expected = [batch for batch, end in zip(batches, ends, strict=True) if end <= cut]
    scan = scan_frames(whole[:cut], is_end=True)
    read = [[row[0] for row in decode_rows(frame.payload)] for frame in scan.frames]
    assert read == expected
    assert scan.consumed == cut
    assert scan.torn == cut - max([0, *(end for end in ends if end <= cut)])


@given(_BATCHES, st.data())
def test_one_flipped_byte_costs_at_most_its_own_frame(batches, data):
    """Every other frame is still read, in order."""
    frames = _frames(batches)
    hurt = data.draw(st.integers(0, len(frames) - 1))
    at = data.draw(st.integers(0, len(frames[hurt]) - 1))
    flipped = bytearray(frames[hurt])
    flipped[at] ^= data.draw(st.integers(1, 255))
    scan = scan_frames(b"".join([*frames[:hurt], bytes(flipped), *frames[hurt + 1 :]]), is_end=True)
    read = [frame.payload for frame in scan.frames]
    assert read == [frame[12:] for number, frame in enumerate(frames) if number != hurt]


@given(st.binary(max_size=200), st.booleans())
def test_noise_holds_no_frame_and_never_raises(noise, is_end):
    """Bytes that no writer wrote are skipped, not believed."""
    scan = scan_frames(noise, is_end=is_end)
    assert scan.frames == ()
    assert scan.consumed in {0, len(noise)}
