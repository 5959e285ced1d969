"""Serves the control API: on `gateway.control` for operators with a key, on a Unix socket (0600) for this user."""

import contextlib
import os
import socket
from collections.abc import Generator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

BACKLOG = 128
SHUTDOWN_S = 2


class _Server(uvicorn.Server):
    """uvicorn without its signal handling: signals are the supervisor's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class ControlServer:
    """One uvicorn server on both sockets. Concurrency: one task runs `run`; `stop` ends it."""

    def __init__(self, app: ASGIApp, sockets: list[socket.socket]) -> None:
        self._sockets = sockets
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
        )

    async def run(self) -> None:
        await self._server.serve(sockets=self._sockets)

    def stop(self) -> None:
        """Answer what is in work, then end `run`."""
        self._server.should_exit = True


def bind_control_socket(path: Path) -> socket.socket:
    """Bind the local command line's socket; only this user can open it."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
