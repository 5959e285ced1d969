"""The batch process, as a child that is kept alive; started with the first caller, or where batches were left open.

Until then only its socket is there, and costs nothing.
"""

import asyncio
import os
import socket

import structlog

from headrace.batch.launch import batch_argv
from headrace.control_api.server import bind_unix
from headrace.declaration.batch_section import BatchPlan
from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.fleet.deploy.process_watch import end_process, spawn, wait_gone
from headrace.settings import Settings

log = structlog.get_logger("headrace.supervisor")
RESTART_S = 1.0
STOP_S = 10.0


class BatchProcess:
    """Keeps `python -m headrace.batch` running. Concurrency: one event loop."""

    def __init__(self, settings: Settings, plan: BatchPlan) -> None:
        self._settings = settings
        self._plan = plan
        self._process: ProcessIdentity | None = None

    async def run(self) -> None:
        """Start it when it is first needed and again whenever it ends, until cancelled."""
        if not self._plan.enabled:
            return
        listener = bind_unix(self._settings.batch_socket)
        try:
            if not (self._settings.batch_dir / "store.db").exists():
                await _wait_readable(listener)
            while True:
                self._start(listener)
                if self._process is not None:
                    await wait_gone(self._process)
                log.warning("batch process ended", output=str(self._log_path))
                await asyncio.sleep(RESTART_S)
        finally:
            listener.close()
            self._settings.batch_socket.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Let it end; batches go on with the next start. Call after `run` was cancelled."""
        if self._process is not None:
            await end_process(self._process, STOP_S)

    @property
    def _log_path(self) -> str:
        return str(self._settings.log_dir / "batch.err")

    def _start(self, listener: socket.socket) -> None:
        output = os.open(self._log_path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._process = spawn(
                batch_argv(self._plan, listener.fileno()),
                env={**os.environ, "HEADRACE_STATE_DIR": str(self._settings.state_dir)},
                output=output,
                pass_fds=(listener.fileno(),),
            )
        finally:
            os.close(output)


async def _wait_readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listener.fileno(), came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listener.fileno())
