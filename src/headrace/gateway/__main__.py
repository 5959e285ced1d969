"""Entry of a gateway worker process: `python -m headrace.gateway --worker N --listen-fd FD`."""

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket

import structlog
import uvloop

from headrace.gateway.control_link import LINE_BYTES, ControlLink
from headrace.gateway.tasks import spawn
from headrace.gateway.worker import Worker
from headrace.settings import load_settings
from headrace.telemetry.process_log import log_to_stderr

ORPHAN_CHECK_S = 1.0
"""How soon a worker notices that its supervisor is gone."""
log = structlog.get_logger("headrace.gateway")


def main() -> None:
    """Run one worker until it has drained."""
    parser = argparse.ArgumentParser(prog="headrace.gateway")
    parser.add_argument("--worker", type=int, required=True, help="serial number; names the control socket")
    parser.add_argument("--listen-fd", type=int, required=True, help="inherited listening socket")
    parser.add_argument("--supervisor-pid", type=int, required=True, help="whose loss ends this worker")
    options = parser.parse_args()
    log_to_stderr()
    # Most objects of a request die with it, by reference count; what is left is worth a look only now and then.
    gc.set_threshold(50_000, 10, 10)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options.worker, options.listen_fd, options.supervisor_pid))


async def _run(serial: int, listen_fd: int, supervisor_pid: int) -> None:
    loop = asyncio.get_running_loop()
    settings = load_settings()
    worker = Worker(settings, serial, socket.socket(fileno=listen_fd), loop)
    life = _Life(worker, supervisor_pid)
    link = ControlLink(worker, life.supervisor_came, life.supervisor_left)
    path = settings.worker_socket(serial)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    before = os.umask(0o177)
    server = await asyncio.start_unix_server(link.serve, path=path, limit=LINE_BYTES)
    os.umask(before)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, life.told_to_stop)
    watch = spawn(life.watch_supervisor(), "watch supervisor")
    gc.freeze()
    await worker.gone.wait()
    watch.cancel()
    server.close()
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


class _Life:
    """Ends the worker when it is told to, or when its supervisor is gone and the plan says `stop`."""

    def __init__(self, worker: Worker, supervisor_pid: int) -> None:
        self._worker = worker
        self._supervisor_pid = supervisor_pid
        self._links = 0

    def supervisor_came(self) -> None:
        self._links += 1

    def supervisor_left(self) -> None:
        self._links -= 1

    def told_to_stop(self) -> None:
        plan = self._worker.plan
        bound_s = plan.drain_s if plan else 0.0
        self._worker.drain(bound_s, is_replacement=False)

    async def watch_supervisor(self) -> None:
        """Without its parent and without a link, a worker is an orphan: kept or ended as the plan says."""
        while True:
            await asyncio.sleep(ORPHAN_CHECK_S)
            plan = self._worker.plan
            is_orphan = os.getppid() != self._supervisor_pid and self._links == 0
            if is_orphan and not (plan is not None and plan.keeps_without_supervisor):
                log.warning("supervisor is gone: draining", supervisor_pid=self._supervisor_pid)
                self.told_to_stop()
                return


if __name__ == "__main__":
    main()
