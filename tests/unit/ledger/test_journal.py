"""The journal's writer: rotation, its bounds, and what it does when the disk refuses."""

import pytest

from headrace.ledger.frames import FrameKind, decode_loss, scan_frames
from headrace.ledger.record import decode_rows
from headrace.ledger.segment import list_segments


def _read(journal_dir):
    """(uids, dropped) of all files."""
    uids, dropped = [], None
    for path in list_segments(journal_dir):
        for frame in scan_frames(path.read_bytes(), is_end=True).frames:
            if frame.kind is FrameKind.LOSS:
                dropped = decode_loss(frame)
            else:
                uids += [int(row[0], 16) for row in decode_rows(frame.payload)]
    return uids, dropped


def test_what_is_appended_is_on_disk_after_a_flush(make_journal, make_record, journal_dir):
    """Records arrive in order and once."""
    journal = make_journal()
    for number in range(3000):
        journal.append(make_record(number))
    assert journal.flush() is True
    assert _read(journal_dir) == (list(range(3000)), None)
    assert (journal.pending, journal.dropped, journal.lag_s, journal.error) == (0, 0, 0.0, None)
    journal.close()


def test_files_are_rotated_at_their_size(make_journal, make_record, journal_dir):
    """No file grows much over segment_bytes, and nothing is lost at the edges."""
    journal = make_journal(segment_bytes=200_000)
    for number in range(5000):
        journal.append(make_record(number))
    journal.close()
    sizes = [path.stat().st_size for path in list_segments(journal_dir)]
    assert len(sizes) > 1
    assert max(sizes) <= 200_000
    assert _read(journal_dir)[0] == list(range(5000))


def test_an_idle_writer_makes_no_file(make_journal, journal_dir):
    """Starting and stopping leaves nothing to clean up."""
    journal = make_journal()
    assert journal.flush() is True
    journal.close()
    assert list_segments(journal_dir) == []


def test_over_the_bound_records_are_dropped_and_the_count_is_journalled(make_journal, make_record, journal_dir):
    """The drop counter equals the gap, and outlives the process."""
    journal = make_journal(buffer_records=10)
    for number in range(13):
        journal.append(make_record(number))
    assert journal.dropped == 3
    journal.close()
    assert _read(journal_dir) == (list(range(10)), 3)


def test_a_journal_at_its_bound_drops_and_says_why(make_journal, make_record, journal_dir):
    """With the database down for very long, the disk is not filled without limit."""
    journal = make_journal(journal_bytes=200_000)
    for number in range(5000):
        journal.append(make_record(number))
    assert journal.flush() is True
    uids, dropped = _read(journal_dir)
    assert len(uids) + journal.dropped == 5000
    assert dropped == journal.dropped > 0
    assert "journal_bytes (200000) reached" in journal.error
    journal.close()


def test_a_refusing_disk_keeps_the_records_until_it_is_back(make_journal, make_record, journal_dir):
    """Nothing is lost while the buffer lasts, and appending never fails."""
    journal_dir.write_text("a file where the folder should be")
    journal = make_journal(buffer_records=10)
    for number in range(8):
        journal.append(make_record(number))
    assert journal.flush() is False
    assert (journal.pending, journal.dropped) == (8, 0)
    assert str(journal_dir) in journal.error
    assert journal.lag_s > 0
    journal_dir.unlink()
    assert journal.flush() is True
    assert _read(journal_dir) == (list(range(8)), None)
    assert journal.error is None
    journal.close()


def test_what_the_disk_refuses_at_the_end_is_counted(make_journal, make_record, journal_dir):
    """A stop with a broken disk says how much it cost."""
    journal_dir.write_text("a file where the folder should be")
    journal = make_journal()
    journal.append(make_record(1))
    journal.close()
    assert journal.dropped == 1


@pytest.mark.parametrize("worker", [0, 999])
def test_two_processes_of_one_worker_write_different_files(make_journal, make_record, journal_dir, worker):
    """During an upgrade the old and the new worker write side by side."""
    one = make_journal(worker=worker)
    one.append(make_record(1))
    one.flush()
    other = type(one)(
        journal_dir, worker=worker, pid=1, started_at=1.0, buffer_records=9, segment_bytes=99999, journal_bytes=9**9
    )
    other.append(make_record(2))
    other.flush()
    assert sorted(_read(journal_dir)[0]) == [1, 2]
    assert len(list_segments(journal_dir)) == 2
    one.close()
    other.close()
