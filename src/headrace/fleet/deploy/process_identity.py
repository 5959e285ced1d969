"""Who a process is: pid plus start time, so that a reused pid is never taken for the process we started.

Stdlib only and small: the warden imports it too. Reads /proc (Linux).
"""

import os
from pathlib import Path
from typing import NamedTuple, Self


class ProcessIdentity(NamedTuple):
    """One process for ever: a pid alone is reused."""

    pid: int
    start_ticks: int
    """Clock ticks from boot to its start (/proc/PID/stat, field 22)."""
    boot: str
    """The kernel's boot id: start ticks of two boots are not comparable."""

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Give the identity of a living process; None where there is none (a zombie is dead)."""
        stat = _stat_fields(pid)
        if stat is None or stat[0] in "ZX":
            return None
        return cls(pid, int(stat[19]), boot_id())

    @property
    def is_alive(self) -> bool:
        return type(self).of(self.pid) == self


def own_identity() -> ProcessIdentity:
    """Return the identity of the calling process."""
    identity = ProcessIdentity.of(os.getpid())
    if identity is None:
        raise OSError("cannot read /proc/self/stat: headrace needs a mounted /proc")
    return identity


def boot_id() -> str:
    """Return the kernel's id of this boot; empty where it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def session_members(session: int) -> list[int]:
    """Pids of the living processes of one session (a warden and all that it started)."""
    members: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            stat = _stat_fields(int(entry))
            if stat is not None and stat[0] not in "ZX" and int(stat[3]) == session:
                members.append(int(entry))
    return members


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; the second may hold blanks and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    return text.rpartition(")")[2].split()
