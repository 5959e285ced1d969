"""Threads shared between replicas."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.threads import share_threads, usable_cores


@given(cores=st.integers(1, 512), replicas=st.integers(1, 512))
def test_replicas_never_use_more_cores_than_there_are(cores: int, replicas: int):
    """The sum stays within the machine as long as each can have one."""
    threads = share_threads(cores, replicas)
    assert threads >= 1
    if replicas <= cores:
        assert threads * replicas <= cores
        assert (threads + 1) * replicas > cores


def test_hardware_threads_of_one_core_count_once(tmp_path: Path):
    """Two hyper-threads are one core for a program whose threads spin."""
    for cpu in os.sched_getaffinity(0):
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("0-127\n")
    assert usable_cores(topology=tmp_path, cgroup_limit=tmp_path / "none") == 1


def test_a_containers_limit_counts(tmp_path: Path):
    """A container that may use one core's time has one core, however many it sees; "max" is no limit."""
    limit = tmp_path / "cpu.max"
    seen = len(os.sched_getaffinity(0))
    for text, expected in [
        ("100000 100000", 1),
        ("50000 100000", 1),
        ("max 100000", seen),
        ("9900000 100000", seen),
        ("?", seen),
    ]:
        limit.write_text(text)
        assert usable_cores(topology=tmp_path, cgroup_limit=limit) == expected
