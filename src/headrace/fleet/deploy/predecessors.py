"""Gateway workers that an earlier supervisor left: who they are, and the very socket they listen on.

Taking over the same socket (pidfd_getfd) loses nothing. Where the kernel does not allow it, a second socket is bound
beside it, and a connection that waits unaccepted in the old one's backlog when that worker closes it is reset.
"""

import ctypes
import json
import os
import socket
from pathlib import Path
from typing import Any, NamedTuple, cast

from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.fleet.deploy.warden_state import write_json_atomically
from headrace.settings import Settings

SYS_PIDFD_GETFD = 438
"""The same number on every architecture. Source: pidfd_getfd(2), Linux 5.6."""


class Predecessor(NamedTuple):
    """A living gateway worker that this supervisor did not start."""

    serial: int
    process: ProcessIdentity


def worker_file(settings: Settings, serial: int) -> Path:
    return settings.run_dir / f"gateway-{serial}.json"


def note_worker(settings: Settings, serial: int, process: ProcessIdentity) -> None:
    """Remember a worker for the supervisor after this one."""
    write_json_atomically(worker_file(settings, serial), process._asdict())


def forget_worker(settings: Settings, serial: int) -> None:
    worker_file(settings, serial).unlink(missing_ok=True)
    settings.worker_socket(serial).unlink(missing_ok=True)


def find_predecessors(settings: Settings) -> list[Predecessor]:
    """Return the living workers of earlier supervisors; what the dead ones left is removed."""
    found: list[Predecessor] = []
    for path in sorted(settings.run_dir.glob("gateway-*.json")):
        serial_text = path.stem.removeprefix("gateway-")
        if not serial_text.isdigit():
            continue
        try:
            process = ProcessIdentity(**cast("dict[str, Any]", json.loads(path.read_bytes())))
        except (OSError, ValueError, TypeError):
            process = None
        if process is not None and process.is_alive:
            found.append(Predecessor(int(serial_text), process))
        else:
            forget_worker(settings, int(serial_text))
    return found


def try_take_listener(predecessors: list[Predecessor], address: tuple[str, int]) -> socket.socket | None:
    """Return the predecessors' own listening socket, where the kernel lets us have it and it is at `address`."""
    for predecessor in predecessors:
        number = _listen_fd_of(predecessor.process.pid)
        descriptor = -1 if number is None else _try_copy_descriptor(predecessor.process, number)
        if descriptor < 0:
            continue
        taken = socket.socket(fileno=descriptor)
        is_listening = taken.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        if is_listening and taken.getsockname()[:2] == address:
            taken.setblocking(False)
            return taken
        taken.close()
    return None


def _listen_fd_of(pid: int) -> int | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return int(words[words.index(b"--listen-fd") + 1])
    except (OSError, ValueError, IndexError):
        return None


def _try_copy_descriptor(process: ProcessIdentity, number: int) -> int:
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return -1
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)) if process.is_alive else -1
    finally:
        os.close(pidfd)
