"""What this machine has: cores for engines, memory left."""

import os
from pathlib import Path


def usable_threads() -> int:
    """Return the cores an engine may use: physical ones, within this process's affinity and CPU quota."""
    allowed = os.sched_getaffinity(0)
    cores = {_core_of(cpu) for cpu in allowed}
    quota = _cpu_quota()
    return max(1, min(len(cores), quota) if quota else len(cores))


def available_memory_bytes() -> int | None:
    """Return what can be had without swapping; None where the kernel does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def resident_bytes(pid: int) -> int | None:
    """Return the memory that a process holds."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _core_of(cpu: int) -> str:
    """Name the physical core of a logical CPU; two hyper-threads share one."""
    folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return f"{(folder / 'physical_package_id').read_text().strip()}:{(folder / 'core_id').read_text().strip()}"
    except OSError:
        return f"cpu{cpu}"


def _cpu_quota() -> int | None:
    """Read the whole cores of a cgroup v2 quota (a container's limit); None where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, int(quota) // int(period))
