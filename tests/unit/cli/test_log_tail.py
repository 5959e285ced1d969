"""`headrace logs -f` follows files over rotation."""

from pathlib import Path

from headrace.cli.log_tail import LogTail, find_logs
from headrace.fleet.deploy.rotated_log import RotatedLog


def test_the_last_lines_are_shown_first(tmp_path: Path) -> None:
    """The newest whole lines, oldest first; half a line waits until it is whole."""
    path = tmp_path / "gateway.log"
    path.write_bytes(b"one\ntwo\nthree\nfo")
    tail = LogTail("gateway", path)
    assert [line.line for line in tail.last_lines(2)] == ["two", "three"]
    with path.open("ab") as stream:
        stream.write(b"ur\n")
    assert [line.line for line in tail.fresh_lines()] == ["four"]
    assert LogTail("gateway", path).last_lines(0) == []


def test_no_line_is_lost_when_a_log_is_rotated(tmp_path: Path) -> None:
    """Lines written just before and after a rotation are all shown, once."""
    log = RotatedLog(tmp_path / "engine-chat-0.log", limit_bytes=40, keep_files=3)
    log.write(b"first\n")
    tail = LogTail("engine-chat-0", tmp_path / "engine-chat-0.log")
    seen = [line.line for line in tail.last_lines(10)]
    for number in range(30):
        log.write(b"line %02d\n" % number)
        seen += [line.line for line in tail.fresh_lines()]
    log.close()
    assert seen == ["first", *(f"line {number:02d}" for number in range(30))]


def test_a_log_that_is_cut_is_read_from_its_start(tmp_path: Path) -> None:
    """A log that was copied and cut goes on from its beginning."""
    path = tmp_path / "gateway.log"
    path.write_bytes(b"a long first line\n")
    tail = LogTail("gateway", path)
    tail.last_lines(1)
    path.write_bytes(b"x\n")
    assert [line.line for line in tail.fresh_lines()] == ["x"]


def test_a_log_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    """An engine that starts later is followed from its first line."""
    tail = LogTail("engine-chat-1", tmp_path / "engine-chat-1.log")
    assert tail.last_lines(5) == []
    assert list(tail.fresh_lines()) == []
    (tmp_path / "engine-chat-1.log").write_bytes(b"hello\n")
    assert [line.line for line in tail.fresh_lines()] == ["hello"]


def test_every_source_is_found_and_rotated_files_are_not(tmp_path: Path) -> None:
    """Sources are the current files; rotated ones are parts of them."""
    for name in ("supervisor.log", "requests.jsonl", "engine-chat-0.log", "engine-chat-0.log.1", "supervisor.err"):
        (tmp_path / name).write_text("")
    assert set(find_logs(tmp_path)) == {"supervisor", "requests", "engine-chat-0"}
