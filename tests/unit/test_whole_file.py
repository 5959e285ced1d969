"""Files are written whole or not at all."""

import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.whole_file import check_room, try_lock, write_whole


@pytest.mark.parametrize("is_durable", [False, True])
def test_content_is_replaced_in_one_step(tmp_path: Path, is_durable: bool) -> None:
    """The old content gives way to the new one, with the rights asked for, and no draft stays."""
    path = tmp_path / "state.json"
    path.write_text("old")
    write_whole(path, "new", mode=0o640, is_durable=is_durable)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_file_that_is_there_can_be_kept(tmp_path: Path) -> None:
    """A file that somebody else has made meanwhile is not written over."""
    path = tmp_path / "headrace.yaml"
    write_whole(path, b"mine", keeps_other=True)
    with pytest.raises(FileExistsError):
        write_whole(path, b"yours", keeps_other=True)
    assert path.read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["headrace.yaml"]


def test_what_cannot_be_written_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    """Content that fails on its way costs the new file, not the old one, and leaves nothing behind."""
    path = tmp_path / "state.json"
    path.write_text("old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))  # as a full disk: a write stops in the middle
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(path, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["state.json"]


def test_one_process_at_a_time_holds_a_file(tmp_path: Path) -> None:
    """Whoever comes second is told so, and has it when the first is gone, however it went."""
    path = tmp_path / ".lock"
    code = "import sys; from headrace.whole_file import try_lock; print(try_lock(sys.stdin.fileno()))"
    with path.open("ab") as ours:
        assert try_lock(ours.fileno())
        with path.open("ab") as theirs:
            found = subprocess.run([sys.executable, "-c", code], stdin=theirs, stdout=subprocess.PIPE, check=True)
    assert found.stdout == b"False\n"
    with path.open("ab") as theirs:
        found = subprocess.run([sys.executable, "-c", code], stdin=theirs, stdout=subprocess.PIPE, check=True)
        assert found.stdout == b"True\n"
        assert try_lock(theirs.fileno())


def test_room_is_tried_out_and_left_as_it_was(tmp_path: Path) -> None:
    """A folder with room keeps nothing of the attempt; one that is not there, or full, says so."""
    check_room(tmp_path, 4096)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No such file"):
        check_room(tmp_path / "none", 4096)
