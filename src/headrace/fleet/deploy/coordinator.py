"""The coordinator: the book from which the gateway workers of one instance lease their shares of limits.

Lives in the supervisor, on a Unix socket that only our own user can open. A worker that dies closes its connection, and
its slots are free. A supervisor that is replaced begins an empty book, which the workers' reports fill.
"""

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from headrace.domain.clock import Clock
from headrace.tenancy.leases.core.book import ExchangeRefusedError, LeaseBook
from headrace.tenancy.leases.exchange import Exchange
from headrace.tenancy.leases.frames import FrameError, read_frame, to_frame

LINGER_S = 0.5
"""A worker whose connection broke keeps its leases for so long: one that lives is back by then."""
NEVER_S = float("inf")
"""Silence alone is no death here: the kernel closes the connection of every process that ends."""


@asynccontextmanager
async def coordinating(path: Path, clock: Clock, log: FilteringBoundLogger) -> "AsyncGenerator[Coordinator]":
    """A coordinator that listens, until the block ends."""
    coordinator = Coordinator(path, clock, log)
    await coordinator.open()
    try:
        yield coordinator
    finally:
        await coordinator.close()


@dataclass(slots=True)
class Coordinator:
    """Serves one book. Concurrency: one event loop."""

    path: Path
    clock: Clock
    log: FilteringBoundLogger
    linger_s: float = LINGER_S
    book: LeaseBook = field(init=False)
    _server: asyncio.Server | None = None
    _connections: dict[str, asyncio.StreamWriter] = field(default_factory=dict[str, asyncio.StreamWriter])
    """By member: the connection it spoke on last."""

    def __post_init__(self) -> None:
        self.book = LeaseBook(secrets.token_hex(8), member_s=NEVER_S)

    async def open(self) -> None:
        """Listen. A socket that another process left is replaced."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    async def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections.values()):
                writer.close()
            self._server = None
            self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member = ""
        try:
            while True:
                message = await read_frame(reader, Exchange)
                member = message.member
                self._connections[member] = writer
                reply = self.book.exchange(message, self.clock.mono_s(), self.clock.wall_s())
                writer.write(to_frame(reply))
                await writer.drain()
        except (FrameError, ExchangeRefusedError) as error:
            self.log.warning("a worker's exchange was refused", reason=str(error))
        except (asyncio.IncompleteReadError, OSError):
            pass  # It left.
        except asyncio.CancelledError:
            pass  # We end; let through, it is a traceback in the log, since asyncio asks for its error (3.11).
        finally:
            writer.close()
            if self._connections.get(member) is writer:
                asyncio.get_running_loop().call_later(self.linger_s, self._bury, member, writer)

    def _bury(self, member: str, writer: asyncio.StreamWriter) -> None:
        if self._connections.get(member) is writer:
            del self._connections[member]
            self.book.leave(member)
