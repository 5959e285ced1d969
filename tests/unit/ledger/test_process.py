"""The projection's process: how it is started, that it stops when told, and that two do not project at once."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from headrace.ledger.backlog import find_backlog
from headrace.ledger.process import AUTOGROUP, DATABASE_VARIABLE, NICENESS, projector_launch

DEADLINE_S = 60


def _start(tmp_path, name, **how):
    launch = projector_launch(tmp_path / "journal", tmp_path / name, f"sqlite:///{tmp_path / 'headrace.db'}")
    return subprocess.Popen(launch.argv, env={**os.environ, **launch.env}, **how)


def _wait_until(is_so):
    deadline_mono_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_mono_s
        time.sleep(0.02)


def _wait_for(path):
    _wait_until(lambda: find_backlog(path) is not None)


def _is_nice(process):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    return os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, own + NICENESS)


def test_the_password_is_not_on_the_command_line(tmp_path):
    """Every user of the machine can read command lines."""
    url = "postgresql://u:hunter2@h/d"
    launch = projector_launch(tmp_path, tmp_path / "ledger.json", url)
    assert not any("hunter2" in argument for argument in launch.argv)
    assert launch.env == {DATABASE_VARIABLE: url}


def test_it_projects_until_told_to_stop(tmp_path, make_journal, make_record):
    """After SIGTERM it takes what is there and ends with 0."""
    process = _start(tmp_path, "ledger.json")
    try:
        _wait_for(tmp_path / "ledger.json")
        journal = make_journal()
        journal.append(make_record(1))
        journal.close()
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
    report = find_backlog(tmp_path / "ledger.json")
    assert report is not None
    assert (report.rows, report.waiting_records, report.error) == (1, 0, None)


def test_it_gives_way_to_requests(tmp_path):
    """Once it runs, whatever else wants the core has it first: callers do not wait for rows."""
    process = _start(tmp_path, "ledger.json")
    try:
        _wait_for(tmp_path / "ledger.json")
        _wait_until(lambda: _is_nice(process))
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this system gives sessions no shares of their own")
@pytest.mark.parametrize("is_leader", [True, False])
def test_the_share_of_its_session_is_lowered_where_it_is_its_own(tmp_path, is_leader):
    """Niceness alone says nothing between sessions; whoever shares its session keeps its share."""
    process = _start(tmp_path, "ledger.json", start_new_session=is_leader)
    shown = Path(f"/proc/{process.pid}/autogroup")
    try:
        _wait_for(tmp_path / "ledger.json")
        _wait_until(lambda: _is_nice(process))
        if is_leader:
            _wait_until(lambda: shown.read_text().endswith(f" nice {NICENESS}\n"))
        else:
            assert shown.read_text() == AUTOGROUP.read_text()
            assert not shown.read_text().endswith(f" nice {NICENESS}\n")
    finally:
        process.kill()
        process.wait()


def test_a_second_one_waits_for_the_first(tmp_path):
    """During an upgrade the two do not write at once; the second takes over when the first ends."""
    first, second = _start(tmp_path, "first.json"), None
    try:
        _wait_for(tmp_path / "first.json")
        second = _start(tmp_path, "second.json")
        first.terminate()
        assert first.wait(DEADLINE_S) == 0
        _wait_for(tmp_path / "second.json")
        assert find_backlog(tmp_path / "second.json").pid == second.pid
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
