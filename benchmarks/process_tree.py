"""CPU time and memory of all processes that belong to one program, from /proc.

A process belongs when it descends from the program's root or carries the program's mark in its environment, so that
daemons which left the tree are counted as well.
"""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What /proc/PID/stat says of one process."""

    pid: int
    parent: int
    started_ticks: int
    cpu_s: float
    """Own user and system time, and that of its children that ended and were waited for."""
    rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Sums over one set of processes."""

    cpu_s: float
    rss_bytes: int
    processes: int


def read_stat(text: str) -> ProcessStat:
    """Parse one /proc/PID/stat line; the command may hold spaces and parentheses."""
    pid, _, rest = text.partition(" (")
    fields = rest[rest.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=int(pid),
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_s=sum(int(fields[i]) for i in (11, 12, 13, 14)) / TICKS_PER_S,
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


class ProcessTable:
    """Snapshots of all processes, and which of them carry a mark."""

    def __init__(self) -> None:
        self._environ: dict[tuple[int, int], bytes] = {}

    def snapshot(self) -> dict[int, ProcessStat]:
        """All processes now."""
        found: dict[int, ProcessStat] = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                stat = read_stat(Path("/proc", entry, "stat").read_text())
            except (OSError, ValueError, IndexError):
                continue  # it ended between listing and reading
            found[stat.pid] = stat
        return found

    def members(self, *, root: int | None, mark: str) -> list[ProcessStat]:
        """`root`, its descendants, and every process with `mark` in its environment."""
        table = self.snapshot()
        pids = _descendants(table, root) | {pid for pid, stat in table.items() if mark and self._has_mark(stat, mark)}
        return [table[pid] for pid in sorted(pids)]

    def usage(self, *, root: int | None, mark: str) -> Usage:
        """Sum over the members."""
        members = self.members(root=root, mark=mark)
        return Usage(
            cpu_s=sum(stat.cpu_s for stat in members),
            rss_bytes=sum(stat.rss_bytes for stat in members),
            processes=len(members),
        )

    def _has_mark(self, stat: ProcessStat, mark: str) -> bool:
        key = (stat.pid, stat.started_ticks)
        if key not in self._environ:
            try:
                environ = Path("/proc", str(stat.pid), "environ").read_bytes()
            except OSError:
                return False
            if not environ:
                return False  # between fork and exec, or a kernel thread: look again next time
            self._environ[key] = environ
        return mark.encode() in self._environ[key]


def _descendants(table: dict[int, ProcessStat], root: int | None) -> set[int]:
    if root is None or root not in table:
        return set()
    children: dict[int, list[int]] = {}
    for stat in table.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    members, open_pids = set[int](), [root]
    while open_pids:
        pid = open_pids.pop()
        if pid not in members:
            members.add(pid)
            open_pids += children.get(pid, [])
    return members
