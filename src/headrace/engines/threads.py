"""How many threads each replica of a CPU engine may use, so that all together never use more cores than there are.

llama.cpp's threads spin while they wait for each other: one thread more than there are free cores costs a factor of
ten (measured: 3 tokens/s instead of 50).
"""

import os
from pathlib import Path

CPU_TOPOLOGY = Path("/sys/devices/system/cpu")
"""Linux's description of cores and their hardware threads."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""A container's CPU bandwidth: "QUOTA PERIOD" in microseconds, or "max PERIOD"."""


def share_threads(core_count: int, replicas: int) -> int:
    """Return the threads of each of `replicas`: an equal share, and at least one.

    With more replicas than cores the sum does exceed the machine, since none can have less than one.
    """
    return max(1, core_count // max(1, replicas))


def usable_cores(*, topology: Path = CPU_TOPOLOGY, cgroup_limit: Path = CGROUP_LIMIT) -> int:
    """Count the physical cores that this process may use: its CPU affinity, and its container's bandwidth."""
    allowed = os.sched_getaffinity(0)
    siblings = {_siblings_of(topology, cpu) for cpu in allowed}
    quota_cores = _quota_cores(cgroup_limit)
    cores = len(siblings)
    return max(1, cores if quota_cores is None else min(cores, quota_cores))


def _siblings_of(topology: Path, cpu: int) -> str:
    """Name the physical core of one hardware thread; each thread is its own where Linux does not say."""
    try:
        return (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota_cores(cgroup_limit: Path) -> int | None:
    try:
        quota, _, period = cgroup_limit.read_text().strip().partition(" ")
        return int(quota) // int(period) if quota != "max" else None
    except (OSError, ValueError):
        return None
