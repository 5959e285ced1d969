"""What this machine has: memory left, memory held."""

import os
from pathlib import Path


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
