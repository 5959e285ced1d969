"""Where the lines of batches come in: a Unix socket of mode 0600, whose only difference is how a caller is identified.

Each line then takes the same six steps as any request. Counterpart: `batch/sender.py`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from headrace.declaration.gateway_plan import LimitsPlan
from headrace.domain.batch import SUBMITTER_HEADER, Submitter
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.http.caller_connection import CallerConnection, Service
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.http.wire import DateLine

_HEADER = SUBMITTER_HEADER.encode("ascii")


class Surrounding(Service, Protocol):
    """The worker that lines are answered by."""

    def line_opened(self, connection: CallerConnection) -> bool: ...


class LineSocket:
    """Implements `Service` for the wire. Concurrency: event loop only."""

    def __init__(self, worker: Surrounding, open_line: Callable[[Exchange], None], path: Path) -> None:
        self._worker = worker
        self._path = path
        self._server: asyncio.Server | None = None
        self.head_arrived = open_line
        self.request_arrived = worker.request_arrived
        self.caller_left = worker.caller_left
        self.connection_opened = worker.line_opened
        self.connection_closed = worker.connection_closed
        self.longest_body = worker.longest_body
        self.date: DateLine = worker.date

    @property
    def limits(self) -> LimitsPlan:
        return self._worker.limits

    @property
    def is_draining(self) -> bool:
        return self._worker.is_draining

    async def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take lines from now on."""
        if self._server is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        before = os.umask(0o177)
        try:
            self._server = await loop.create_unix_server(lambda: CallerConnection(self, loop), str(self._path))
        finally:
            os.umask(before)

    def close(self) -> None:
        """Take no new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()


def read_submitter(exchange: Exchange) -> Submitter:
    """Whose line it is. Raises: RequestError INVALID_REQUEST."""
    try:
        return msgspec.json.decode(exchange.headers.get(_HEADER, b""), type=Submitter)
    except UNDECODABLE as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"header {SUBMITTER_HEADER}: {error}") from error
