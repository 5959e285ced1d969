"""Ports of this machine for tests."""

import secrets
import socket

FIRST, LAST = 20_000, 32_000
"""Below the ports that the kernel gives to whoever asks for any: none of these is taken between now and its use."""


def free_port(*offsets: int) -> int:
    """A TCP port that nobody listens on now, nor on those at `offsets` from it."""
    while True:
        port = FIRST + secrets.randbelow(LAST - FIRST)
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
