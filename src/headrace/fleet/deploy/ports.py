"""Ports: find free ones for engines, find out who holds a taken one before anything is started."""

import errno
import os
import socket
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from headrace.domain.operator_error import OperatorError

FIRST_PORT, PORT_SPAN = 7200, 2000
"""Engine ports: below the kernel's ephemeral range (from 32768), above what operators pick for gateways here."""
BACKLOG = 4096
"""Connections that wait while a worker is being replaced; the kernel lowers it to net.core.somaxconn."""
LISTEN_STATE = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


class PortTakenError(OperatorError):
    """Another process listens where the gateway or the control API should."""


def split_address(listen: str) -> tuple[str, int]:
    """Split HOST:PORT; [::1]:7070 has its brackets taken off."""
    host, _, port = listen.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def bind_listener(listen: str, *, key: str, own_pids: Collection[int] = ()) -> socket.socket:
    """Bind a listening socket; `key` is the setting to name in the error.

    It has SO_REUSEPORT, with which a successor of ours can bind beside it; so that two strangers cannot share a port
    by accident, it is first tried without. `own_pids` may hold it already: gateway workers of an earlier supervisor.

    Raises: PortTakenError, OperatorError.
    """
    family, address = _try_address(listen, key, own_pids)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _port_taken(listen, key, error, find_holder(split_address(listen)[1])) from error
    return listener


def check_address(listen: str, *, key: str, own_pids: Collection[int] = ()) -> None:
    """Find out whether `bind_listener` would work, without listening. Raises: PortTakenError, OperatorError."""
    _try_address(listen, key, own_pids)


def _try_address(listen: str, key: str, own_pids: Collection[int]) -> tuple[socket.AddressFamily, Any]:
    """Resolve and try it without SO_REUSEPORT."""
    host, port = split_address(listen)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise OperatorError(f"{key}: cannot resolve the host of {listen!r}: {error.strerror}") from error
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        holder = find_holder(port)
        if holder is None or holder.pid not in own_pids:
            raise _port_taken(listen, key, error, holder) from error
    return family, address


def _port_taken(listen: str, key: str, error: OSError, holder: "PortHolder | None") -> PortTakenError:
    held = f"; held by {holder}" if holder else ""
    remedies = {
        errno.EACCES: f"Ports below 1024 need CAP_NET_BIND_SERVICE; or set {key} in headrace.yaml to a higher one.",
        errno.EADDRNOTAVAIL: f"This machine has no such address: set {key} in headrace.yaml to one that it has.",
    }
    return PortTakenError(
        f"{key}: cannot listen on {listen}: {error.strerror}{held}",
        hint=remedies.get(error.errno or 0, f"Stop that process, or set {key} in headrace.yaml to another address."),
    )


def is_port_free(host: str, port: int) -> bool:
    """Whether an engine could listen there now."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError:
        return False
    return True


def choose_port(host: str, taken: Collection[int], *, seed: str, preferred: int | None = None) -> int:
    """Choose a free engine port: the preferred one if it is free, else the next after a start that `seed` gives.

    Two instances have different seeds (state folders) and so rarely try the same port at the same moment.
    """
    if preferred is not None and preferred not in taken and is_port_free(host, preferred):
        return preferred
    start = zlib.crc32(seed.encode()) % PORT_SPAN
    for offset in range(PORT_SPAN):
        port = FIRST_PORT + (start + offset) % PORT_SPAN
        if port not in taken and is_port_free(host, port):
            return port
    raise OperatorError(f"no free port for an engine between {FIRST_PORT} and {FIRST_PORT + PORT_SPAN - 1} on {host}")


class PortHolder(NamedTuple):
    """Who listens on a port."""

    pid: int | None
    """None: a process of another user."""
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command})" if self.pid else self.command


def find_holder(port: int) -> PortHolder | None:
    """Return the process that listens on TCP `port`; None where nobody does."""
    inodes = _listening_inodes(port)
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for pid in (entry for entry in os.listdir("/proc") if entry.isdigit()):
        if sockets and not sockets.isdisjoint(_open_files(pid)):
            return PortHolder(int(pid), _command_of(int(pid)))
    return PortHolder(None, "a process of another user") if inodes else None


def _open_files(pid: str) -> set[str]:
    """What a process has open; nothing for another user's process."""
    found: set[str] = set()
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for number in numbers:
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue  # Closed meanwhile.
    return found


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def _command_of(pid: int) -> str:
    """The start of a command line, without what may be secret in its arguments."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "?"
    return " ".join(words[:3])[:80].strip()
