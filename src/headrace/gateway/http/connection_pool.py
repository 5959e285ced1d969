"""Keep-alive connections to one engine address, newest first, so that a quiet pool shrinks by itself."""

import asyncio
import ssl
from dataclasses import dataclass
from time import monotonic

from headrace.gateway.http.engine_connection import AnswerReader, EngineConnection, LossReason
from headrace.gateway.tasks import spawn

IDLE_LIMIT_S = 4.0
"""Idle connections are closed before the engine does it: uvicorn, under vLLM and SGLang, closes after 5 s.

Source: uvicorn setting `timeout_keep_alive`, default 5.
"""
IDLE_CONNECTIONS = 512
"""Idle connections kept per endpoint; chosen above the stream count of one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to connect, and how to trust what answers."""

    host: str
    """Name or IP address to connect to."""
    port: int
    tls: ssl.SSLContext | None
    server_name: str | None
    """Name expected in the certificate."""
    connect_timeout_s: float


class PendingRequest:
    """A request whose connection is still being made; `cancel` withdraws it."""

    __slots__ = ("body", "connection", "head", "is_cancelled", "reader")

    def __init__(self, head: bytes, body: bytes, reader: AnswerReader) -> None:
        self.head = head
        self.body = body
        self.reader = reader
        self.is_cancelled = False
        self.connection: EngineConnection | None = None

    def cancel(self) -> None:
        self.is_cancelled = True
        if self.connection is not None:
            self.connection.cancel()

    def pause(self) -> None:
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        if self.connection is not None:
            self.connection.resume()


Sending = EngineConnection | PendingRequest
"""A request under way: `cancel`, `pause` and `resume` it."""


class ConnectionPool:
    """All connections of one endpoint. Concurrency: event loop only."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self._loop = loop
        self._idle: list[EngineConnection] = []
        self._is_closed = False
        self.open_count = 0

    def send(self, head: bytes, body: bytes, reader: AnswerReader, *, fresh: bool = False) -> Sending:
        """Send a request on an idle connection, or on a new one; `fresh` insists on a new one."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_usable:
                connection.request(head, body, reader)
                return connection
        pending = PendingRequest(head, body, reader)
        spawn(self._serve(pending), "connect to engine")
        return pending

    def sweep(self, now_mono_s: float) -> None:
        """Close what has been idle for too long; oldest first in the list."""
        while self._idle and now_mono_s - self._idle[0].idle_since_mono_s > IDLE_LIMIT_S:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Close idle connections now and the others when they become free."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _serve(self, pending: PendingRequest) -> None:
        try:
            await self._connect(pending)
        except Exception as bug:  # noqa: BLE001 (boundary of this task)
            pending.reader.crashed(bug)

    async def _connect(self, pending: PendingRequest) -> None:
        address = self.address
        try:
            async with asyncio.timeout(address.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: EngineConnection(self._freed, self._lost),
                    address.host,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.server_name if address.tls else None,
                )
        except TimeoutError:
            detail = f"no connection to {address.host}:{address.port} within {address.connect_timeout_s:g} s"
            self._refused(pending, detail)
        except (OSError, ssl.SSLError) as error:
            self._refused(pending, f"{address.host}:{address.port}: {error}")
        else:
            self.open_count += 1
            if pending.is_cancelled:
                self._freed(connection)
            else:
                pending.connection = connection
                connection.request(pending.head, pending.body, pending.reader)

    def _refused(self, pending: PendingRequest, detail: str) -> None:
        if not pending.is_cancelled:
            pending.reader.answer_lost(LossReason.CONNECT, detail)

    def _freed(self, connection: EngineConnection) -> None:
        if self._is_closed or len(self._idle) >= IDLE_CONNECTIONS:
            connection.close()
            return
        connection.idle_since_mono_s = monotonic()
        self._idle.append(connection)

    def _lost(self, connection: EngineConnection) -> None:
        self.open_count -= 1
        if connection in self._idle:
            self._idle.remove(connection)

    def __repr__(self) -> str:
        return (
            f"ConnectionPool({self.address.host}:{self.address.port}, open={self.open_count}, idle={len(self._idle)})"
        )
