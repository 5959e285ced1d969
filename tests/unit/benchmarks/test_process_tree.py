"""CPU and memory are summed over all processes of a program, wherever they went."""

import os
import subprocess
import sys
import time

import pytest
from benchmarks.process_tree import TICKS_PER_S, ProcessTable, read_stat

STAT = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 100 50 20 30 20 0 1 0 12345 1000000 256 18446744073709551615"


def test_reads_a_command_with_spaces_and_parentheses() -> None:
    """The command's text cannot shift the fields."""
    stat = read_stat(STAT)
    assert (stat.pid, stat.parent, stat.started_ticks) == (42, 7, 12345)
    assert stat.cpu_s == pytest.approx(200 / TICKS_PER_S)
    assert stat.rss_bytes == 256 * os.sysconf("SC_PAGE_SIZE")


def test_counts_a_daemon_that_left_the_tree() -> None:
    """A process that was started anew below init still belongs to the program by its mark."""
    mark = f"HEADRACE_BENCH_TARGET=test-{os.getpid()}"
    child = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {'import time; time.sleep(30)'!r}])"
    subprocess.run([sys.executable, "-c", child], check=True, env={**os.environ, "HEADRACE_BENCH_TARGET": mark[22:]})
    table, deadline_mono_s = ProcessTable(), time.monotonic() + 20
    members = table.members(root=None, mark=mark)
    while not members and time.monotonic() < deadline_mono_s:
        members = table.members(root=None, mark=mark)
    for stat in members:
        os.kill(stat.pid, 9)
    assert len(members) == 1


def test_children_that_ended_stay_in_the_sum() -> None:
    """CPU of children that were waited for is not lost."""
    before = ProcessTable().usage(root=os.getpid(), mark="").cpu_s
    subprocess.run([sys.executable, "-c", "sum(i * i for i in range(3_000_000))"], check=True)
    after = ProcessTable().usage(root=os.getpid(), mark="").cpu_s
    assert after - before > 0.02
