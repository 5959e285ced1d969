"""Journal files: the lock tells whether they are still written, and a failed write leaves nothing behind."""

from headrace.ledger.segment import SegmentFile, is_sealed, list_segments, total_bytes, writer_name, writer_of

WRITER = writer_name(3, pid=41, started_ms=1_700_000_000_000)


def test_a_file_is_sealed_when_its_writer_closes_it(journal_dir):
    """The reader deletes nothing that may still grow."""
    segment = SegmentFile(journal_dir, WRITER, 0)
    assert is_sealed(segment.path) is False
    segment.close()
    assert is_sealed(segment.path) is True


def test_files_are_listed_in_writing_order(journal_dir):
    """Half-opened files and strangers are not journal files."""
    assert list_segments(journal_dir) == []
    segments = [SegmentFile(journal_dir, WRITER, number) for number in (2, 0, 10)]
    (journal_dir / "note.txt").write_text("x")
    (journal_dir / ".w.journal.opening").write_text("x")
    names = [path.name for path in list_segments(journal_dir)]
    assert names == [f"{WRITER}-{number:06d}.journal" for number in (0, 2, 10)]
    assert {writer_of(name) for name in names} == {WRITER}
    for segment in segments:
        segment.close()


def test_sizes_are_summed_over_files(journal_dir):
    """The journal's bound holds for all workers together."""
    assert total_bytes(journal_dir) == 0
    for number in range(2):
        segment = SegmentFile(journal_dir, WRITER, number)
        segment.write(b"x" * 10)
        segment.close()
    assert total_bytes(journal_dir) == 20


def test_files_are_readable_by_their_owner_only(journal_dir):
    """Who asked what when is nobody else's business."""
    segment = SegmentFile(journal_dir, WRITER, 0)
    segment.close()
    assert segment.path.stat().st_mode & 0o777 == 0o600
