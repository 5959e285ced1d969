"""Sends bytes at once, where uvloop's own `write` would wait for the end of the loop's turn.

With hundreds of streams a turn takes milliseconds: an event that was read at its beginning would wait until the last
one has been read, and a request for the engine likewise. The system call is the same one, and as dear.
"""

import asyncio
from collections.abc import Callable
from os import write as write_to_fd


def writer_of(transport: asyncio.Transport) -> Callable[[bytes], None]:
    """Return what sends on `transport`: at once if it is a plain socket, in its own time if it is encrypted."""
    socket = transport.get_extra_info("socket")
    if socket is None or transport.get_extra_info("sslcontext") is not None:
        return transport.write
    return DirectWriter(transport, socket.fileno()).write


def write_nothing(_: bytes) -> None:
    """What a connection writes with before it has a transport."""


class DirectWriter:
    """Bytes go out in the order of the calls: what the system does not take waits in the transport, and all after it.

    Concurrency: event loop only.
    """

    def __init__(self, transport: asyncio.Transport, fd: int) -> None:
        self._transport = transport
        self._fd = fd
        """Of the transport's socket. Once that closes another may get the number, hence the question in each call."""

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport.get_write_buffer_size() or transport.is_closing():
            transport.write(data)
            return
        try:
            sent = write_to_fd(self._fd, data)
        except OSError:  # full for now, or broken: the transport waits, or finds out and tells its protocol
            sent = 0
        if sent < len(data):
            transport.write(data[sent:] if sent else data)
