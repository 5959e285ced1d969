"""The request log: whole lines, rotated, shared by several processes."""

import pytest

from headrace.ledger.lines import RotatingLines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "requests.jsonl"


def test_lines_are_written_whole_and_in_order(path):
    """One line per append."""
    lines = RotatingLines(path, log_bytes=1 << 20, log_files=3)
    for number in range(3000):
        lines.append(b'{"n":%d}' % number)
    assert lines.flush() is True
    assert path.read_bytes().splitlines() == [b'{"n":%d}' % number for number in range(3000)]
    assert path.stat().st_mode & 0o777 == 0o600
    lines.close()


def test_the_log_is_rotated_and_old_files_go(path):
    """The log's disk space is bounded by size times number."""
    lines = RotatingLines(path, log_bytes=10, log_files=2)
    for number in range(5):
        lines.append(b"line number %d" % number)
        lines.flush()
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir() if entry.suffix != ".lock"} == {
        "requests.jsonl.1": b"line number 4\n",
        "requests.jsonl.2": b"line number 3\n",
    }
    lines.close()


def test_workers_share_one_log_through_rotation(path):
    """No line is lost or doubled when one worker rotates under the other."""
    workers = [RotatingLines(path, log_bytes=60, log_files=100) for _ in range(2)]
    for number in range(40):
        workers[number % 2].append(b"line number %03d" % number)
        workers[number % 2].flush()
    for worker in workers:
        worker.close()
    written = [line for file in path.parent.iterdir() for line in file.read_bytes().splitlines()]
    assert sorted(written) == [b"line number %03d" % number for number in range(40)]


def test_a_refusing_disk_keeps_lines_then_drops_and_counts(path):
    """Logging never stops a request."""
    path.parent.write_text("a file where the folder should be")
    lines = RotatingLines(path, log_bytes=1 << 20, log_files=3, buffer_lines=4)
    for number in range(6):
        lines.append(b"%d" % number)
    assert lines.flush() is False
    assert str(path.parent) in lines.error
    path.parent.unlink()
    assert lines.flush() is True
    assert path.read_bytes() == b"0\n1\n2\n3\n"
    assert (lines.dropped, lines.error) == (2, None)
    lines.close()
