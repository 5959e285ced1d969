"""Serving the control API in the supervisor's event loop: one TCP port for operators, one Unix socket for the CLI."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import cast

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from headrace.control_api.access import LOCAL_USER
from headrace.domain.operator_error import OperatorError
from headrace.settings import user_name

_PEER = struct.Struct("=iii")
"""pid, uid, gid. Source: struct ucred, unix(7)."""
_BACKLOG = 128
_CONNECTIONS = 256
"""More at once are answered 503."""
_STOP_S = 5
_REQUEST_S = 20.0
"""A request that is not here whole by then is cut off; they are a few hundred bytes."""


class ControlServer:
    """Both listeners of one instance. Connections made before `run` wait in the sockets' queues.

    Concurrency: `run` is one task of the supervisor; `stop` or cancelling the task ends it. Takes no signals.
    """

    def __init__(
        self, listeners: Sequence[tuple[Starlette, socket.socket]], *, request_timeout_s: float = _REQUEST_S
    ) -> None:
        protocol = _bounded_protocol(request_timeout_s)
        self._listeners = [(_Server(_config(app, protocol)), listening) for app, listening in listeners]

    async def run(self) -> None:
        """Serve until `stop`; the sockets are closed at the end."""
        try:
            async with asyncio.TaskGroup() as group:
                for server, listening in self._listeners:
                    group.create_task(server.serve(sockets=[listening]))
        finally:
            for _, listening in self._listeners:
                listening.close()

    def stop(self) -> None:
        """End `run`: requests under way are given a few seconds."""
        for server, _ in self._listeners:
            server.should_exit = True


def bind_unix(path: Path) -> socket.socket:
    """Listen at `path`, mode 0600 from its first moment; a socket left by a dead instance is replaced.

    Raises: OperatorError.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unnamed = path.with_name(f".{os.getpid()}.sock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        unnamed.unlink(missing_ok=True)
        listening.bind(str(unnamed))
        unnamed.chmod(0o600)
        listening.listen(_BACKLOG)
        unnamed.replace(path)
    except OSError as error:
        listening.close()
        with contextlib.suppress(OSError):
            unnamed.unlink()
        raise OperatorError(f"cannot listen at {path}: {error.strerror or error}") from error
    listening.setblocking(False)
    return listening


class _Server(uvicorn.Server):
    """uvicorn without its signals: the supervisor has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _bounded_protocol(request_timeout_s: float) -> type[H11Protocol]:
    """uvicorn bounds the silence between two requests, but not how slowly one may come: this does."""

    class BoundedProtocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            user = _find_user(transport)
            if user is not None:
                self.client = (f"{LOCAL_USER}{user}", 0)
            self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.trailing_data[0]:  # the next request has begun already
                self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_watching()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Run the clock while a request is awaited or incomplete, from its first byte on."""
            cycle = cast("RequestResponseCycle | None", self.cycle)
            if cycle is not None and not cycle.response_complete and not cycle.more_body:
                self._stop_watching()
            elif self._timer is None:
                self._timer = self.loop.call_later(request_timeout_s, self.transport.abort)

        def _stop_watching(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return BoundedProtocol


def _find_user(transport: asyncio.Transport) -> str | None:
    """Who has opened the instance's own socket, as the kernel says; None for a TCP connection."""
    connected = cast("socket.socket", transport.get_extra_info("socket"))
    if connected.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    _, uid, _ = _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return user_name(uid)


def _config(app: Starlette, protocol: type[H11Protocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_STOP_S,
    )
