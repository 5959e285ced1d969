"""What runs in the batch process. Counterparts: `launch.py`, `wiring/batch_process.py`."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Generator

import structlog
import uvicorn
from starlette.applications import Starlette

from headrace.batch.api import BatchApi
from headrace.batch.desk import BatchDesk
from headrace.batch.objects import StoredBatch
from headrace.batch.runner import BatchRunner
from headrace.batch.sender import LineSender
from headrace.batch.store import BatchStore
from headrace.declaration.batch_section import DAY_S, BatchPlan
from headrace.domain.clock import SystemClock
from headrace.settings import Settings
from headrace.whole_file import try_lock

log = structlog.get_logger("headrace.batch")
ORPHAN_CHECK_S = 0.5
STOP_S = 5
CONNECTIONS = 1024


async def run_batches(settings: Settings, plan: BatchPlan, listener: socket.socket, supervisor_pid: int) -> None:
    """Answer for files and batches until told to stop, or until the supervisor is gone."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    folder = settings.batch_dir
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / ".lock", "ab") as lock:  # noqa: ASYNC230 (once, at the start)
        while not try_lock(lock.fileno()):  # an earlier one still ends; callers wait in the socket's queue
            if stopping.is_set() or os.getppid() != supervisor_pid:
                return
            await asyncio.sleep(ORPHAN_CHECK_S / 5)
        store = BatchStore(folder)
        try:
            await _serve(settings, plan, listener, supervisor_pid, stopping, store)
        finally:
            store.close()


async def _serve(
    settings: Settings,
    plan: BatchPlan,
    listener: socket.socket,
    supervisor_pid: int,
    stopping: asyncio.Event,
    store: BatchStore,
) -> None:
    clock, sender = SystemClock(), LineSender(settings.run_dir)
    if strays := store.delete_strays():
        log.info("contents that belong to nothing are deleted", deleted=strays)
    slots = asyncio.Semaphore(plan.concurrency)

    def make_runner(batch: StoredBatch) -> BatchRunner:
        return BatchRunner(batch, store, sender, slots, plan, clock)

    desk = BatchDesk(store, make_runner, clock, plan.retention_days * DAY_S)
    server = _Server(_config(BatchApi(store, desk, plan, clock).app()))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]))
        working = group.create_task(desk.run())
        while not stopping.is_set() and os.getppid() == supervisor_pid:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ORPHAN_CHECK_S):
                    await stopping.wait()
        server.should_exit = True
        working.cancel()
        await serving
    await sender.close()


class _Server(uvicorn.Server):
    """uvicorn without its signals: the process has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _config(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=STOP_S,
    )
