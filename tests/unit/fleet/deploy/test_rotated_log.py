"""A rotated log keeps its bound, its order and its last lines, and never stops its writer."""

from pathlib import Path

import pytest

from headrace.fleet.deploy.rotated_log import LAST_LINES, LINE_BYTES, RotatedLog


@pytest.mark.parametrize(("writes", "rotated"), [(1, 0), (10, 0), (11, 1), (21, 2), (100, 2)])
def test_files_are_rotated_at_the_limit_and_only_so_many_kept(tmp_path: Path, writes: int, rotated: int) -> None:
    """At the limit a file is still written to; over it a fresh one is begun, and the oldest is dropped."""
    log = RotatedLog(tmp_path / "engine.log", limit_bytes=100, keep_files=2)
    for number in range(writes):
        log.write(b"line %04d\n" % number)
    log.close()

    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["engine.log", "engine.log.1", "engine.log.2"][: rotated + 1]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    assert (tmp_path / "engine.log").read_bytes().endswith(b"line %04d\n" % (writes - 1))


def test_the_last_lines_survive_chunks_cut_anywhere(tmp_path: Path) -> None:
    """What an engine said last is kept line by line, however its output arrived."""
    log = RotatedLog(tmp_path / "engine.log", limit_bytes=1 << 20, keep_files=1)
    text = b"".join(b"line %d\n" % number for number in range(LAST_LINES + 5)) + b"unfinished"
    for start in range(0, len(text), 7):
        log.write(text[start : start + 7])
    log.close()

    assert log.last_lines() == [f"line {number}" for number in range(6, LAST_LINES + 5)] + ["unfinished"]


def test_a_flood_without_line_ends_is_bounded(tmp_path: Path) -> None:
    """A binary flood does not fill the memory."""
    log = RotatedLog(tmp_path / "engine.log", limit_bytes=1 << 20, keep_files=1)
    log.write(b"x" * 100_000)
    log.close()
    assert log.last_lines() == ["x" * LINE_BYTES]


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """Where the file cannot be opened, what is written is counted as dropped, and no error is raised."""
    (tmp_path / "file").write_text("in the way")
    log = RotatedLog(tmp_path / "file" / "engine.log", limit_bytes=100, keep_files=1)
    log.write(b"12345")
    log.close()
    assert log.dropped_bytes == 5
    assert log.last_lines() == ["12345"]
