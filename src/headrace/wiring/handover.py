"""What a supervisor passes to the program that replaces it in the same process (`headrace reload --upgrade`).

Open sockets and the lock stay open across exec; their numbers travel in one environment variable.
"""

import os
import socket
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass

import msgspec

VARIABLE = "HEADRACE_HANDOVER"


class Handover(msgspec.Struct, frozen=True, kw_only=True):
    """Descriptors that are already open in this process."""

    lock_fd: int
    listener_fd: int
    control_fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSockets:
    """What an instance must keep open for its successor."""

    lock_fd: int
    listener: socket.socket
    control: socket.socket


def take_handover(environ: MutableMapping[str, str]) -> Handover | None:
    """Return what a predecessor in this very process has left, and remove it from the environment."""
    text = environ.pop(VARIABLE, None)
    return msgspec.json.decode(text, type=Handover) if text else None


def exec_successor(arguments: list[str], held: HeldSockets) -> None:
    """Execute the installed program anew in this process: same pid, same children, same sockets. Does not return."""
    handover = Handover(lock_fd=held.lock_fd, listener_fd=held.listener.fileno(), control_fd=held.control.fileno())
    for descriptor in (handover.lock_fd, handover.listener_fd, handover.control_fd):
        os.set_inheritable(descriptor, True)
    env = {**os.environ, VARIABLE: msgspec.json.encode(handover).decode()}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "headrace.wiring", *arguments], env)  # noqa: S606 - our own program, no shell


def adopt_socket(descriptor: int) -> socket.socket:
    """Use an inherited listening socket; our children get it only where they are meant to."""
    os.set_inheritable(descriptor, False)
    adopted = socket.socket(fileno=descriptor)
    adopted.setblocking(False)
    return adopted
