"""Ports of this machine for tests."""

import socket


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
