"""Serving the control API in the supervisor's event loop: one TCP port for operators, one Unix socket for the CLI."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Generator, Sequence
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from headrace.domain.operator_error import OperatorError

_BACKLOG = 128
_CONNECTIONS = 256
"""More at once are answered 503."""
_STOP_S = 5


class ControlServer:
    """Both listeners of one instance. Connections made before `run` wait in the sockets' queues.

    Concurrency: `run` is one task of the supervisor; `stop` or cancelling the task ends it. Takes no signals.
    """

    def __init__(self, listeners: Sequence[tuple[Starlette, socket.socket]]) -> None:
        self._listeners = [(_Server(_config(app)), listening) for app, listening in listeners]

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


def bind_tcp(host: str, port: int) -> socket.socket:
    """Listen on HOST:PORT (port 0: any free one).

    Raises: OperatorError naming the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        hint = "Another program uses it: change gateway.control." if error.errno == errno.EADDRINUSE else None
        raise OperatorError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint) from error
    listening.setblocking(False)
    return listening


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


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
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
