"""The supervisor's side of one gateway worker: start it on the shared socket, speak domain/worker.py's protocol."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from headrace.domain.miss_status import MissStatus
from headrace.domain.queue_status import QueueStatus
from headrace.domain.quota_status import LimitStatus
from headrace.domain.routing_status import RouteExplanation, RoutingStatus
from headrace.domain.split_status import SplitStatus
from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.worker import (
    Configure,
    Drain,
    ExplainRoute,
    ReadMetrics,
    ReadMisses,
    ReadQueues,
    ReadQuota,
    ReadRouting,
    ReadSplits,
    ReadStatus,
    SetKeys,
    SetSpent,
    WorkerCommand,
    WorkerReply,
    WorkerStatus,
)
from headrace.fleet.deploy.process_identity import ProcessIdentity
from headrace.fleet.deploy.process_watch import spawn, try_signal, wait_or_kill
from headrace.settings import Settings

CONNECT_S = 30.0
"""Bound for a worker to open its socket: an interpreter's start with uvloop, with room for a busy machine."""
REPLY_S = 10.0
"""Bound for one command; a worker answers from its event loop at once."""
LINE_BYTES = 64 << 20
"""Longest reply line; metrics text of a large fleet is far below."""
LAST_BYTES, SHOWN_CHARACTERS = 16384, 400
"""Of a worker's output, what is looked at for its last line, and how much of that is shown."""
GATEWAY_MODULE = ("-m", "headrace.gateway")
ALLOCATION = MappingProxyType({"MALLOC_MMAP_THRESHOLD_": "4194304", "MALLOC_TRIM_THRESHOLD_": "33554432"})
"""For glibc: the memory of bodies is used again, blocks of up to 4 MiB, 32 MiB of them unused, rather than given back
and fetched anew page by page. Measured (`python -m benchmarks micro`): a request of 256 KB takes 140 to 165 us of CPU;
left to itself 140 to 290, depending on what else lies in memory. What the environment says goes before.
"""


class WorkerLostError(Exception):
    """The worker did not answer: it ended, or its socket is not there."""


class WorkerProcess:
    """One gateway process.

    Concurrency: one owner on the event loop; commands are sent one after the other.
    """

    def __init__(
        self, serial: int, socket_path: Path, process: ProcessIdentity | None, output: "WorkerOutput | None" = None
    ) -> None:
        self.serial = serial
        self.output = output
        """Where it says what goes wrong; None for a worker of an earlier supervisor."""
        self.process = process
        """None only for a worker of an earlier supervisor that has not told its pid yet."""
        self.is_draining = False
        self.restarts = 0
        """How often a worker in its place was started again after it died; kept by whoever restarts it."""
        self._socket_path = socket_path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._turn = asyncio.Lock()
        self._connecting = asyncio.Lock()

    def __repr__(self) -> str:
        return f"WorkerProcess(serial={self.serial}, pid={self.pid}, draining={self.is_draining})"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    async def connect(self, bound_s: float = CONNECT_S) -> None:
        """Open the worker's socket, waiting until it is there.

        Raises: WorkerLostError.
        """
        loop = asyncio.get_running_loop()
        end_mono_s = loop.time() + bound_s
        while True:
            try:
                self._reader, self._writer = await asyncio.open_unix_connection(self._socket_path, limit=LINE_BYTES)
                return
            except OSError as error:
                is_gone = self.process is not None and not self.process.is_alive
                if is_gone or loop.time() >= end_mono_s:
                    why = "it ended" if is_gone else f"no answer on its socket: {error.strerror}"
                    raise WorkerLostError(f"gateway worker {self.serial} did not start: {why}") from error
            await asyncio.sleep(0.02)

    async def call(self, command: WorkerCommand, bound_s: float = REPLY_S) -> WorkerReply:
        """Send one command and return the answer.

        Raises: WorkerLostError.
        """
        async with self._turn:
            reader, writer = self._reader, self._writer
            if reader is None or writer is None:
                raise WorkerLostError(f"gateway worker {self.serial} is not connected")
            try:
                async with asyncio.timeout(bound_s):
                    writer.write(msgspec.json.encode(command) + b"\n")
                    await writer.drain()
                    line = await reader.readline()
                return msgspec.json.decode(line, type=WorkerReply)
            except (*UNDECODABLE, OSError, TimeoutError, ValueError) as error:
                self.close()  # A late answer must not be taken for the next command's.
                raise WorkerLostError(f"gateway worker {self.serial} did not answer: {error!r}") from error
            except asyncio.CancelledError:
                self.close()
                raise

    async def configure(self, plan: msgspec.Raw) -> WorkerReply:
        return await self.call(Configure(plan=plan))

    async def set_keys(self, command: SetKeys) -> WorkerReply:
        return await self.call(command)

    async def set_spent(self, command: SetSpent) -> WorkerReply:
        return await self.call(command)

    async def read_status(self) -> WorkerStatus | None:
        """Return the worker's own view; None where it does not answer."""
        try:
            reply = await self._ask(ReadStatus())
            return msgspec.json.decode(reply.text, type=WorkerStatus) if reply.ok else None
        except (*UNDECODABLE, WorkerLostError):
            return None

    async def read_routing(self) -> RoutingStatus | None:
        """Return what it knows of prompts and hits; None where it does not answer."""
        try:
            reply = await self._ask(ReadRouting())
            return msgspec.json.decode(reply.text, type=RoutingStatus) if reply.ok else None
        except (*UNDECODABLE, WorkerLostError):
            return None

    async def read_misses(self) -> MissStatus | None:
        """Return why prompts missed the caches; None where it does not answer."""
        try:
            reply = await self._ask(ReadMisses())
            return msgspec.json.decode(reply.text, type=MissStatus) if reply.ok else None
        except (*UNDECODABLE, WorkerLostError):
            return None

    async def read_splits(self) -> SplitStatus | None:
        """Return its traffic with an eye on prefill and decode; None where it does not answer."""
        try:
            reply = await self._ask(ReadSplits())
            return msgspec.json.decode(reply.text, type=SplitStatus) if reply.ok else None
        except (*UNDECODABLE, WorkerLostError):
            return None

    async def explain_route(self, wish: ExplainRoute) -> RouteExplanation | str:
        """Return where it would send a request, or why not. Raises: WorkerLostError."""
        reply = await self._ask(wish)
        return msgspec.json.decode(reply.text, type=RouteExplanation) if reply.ok else reply.message

    async def read_metrics(self) -> str:
        """Return its metrics; empty where it does not answer."""
        try:
            return (await self._ask(ReadMetrics())).text
        except WorkerLostError:
            return ""

    async def read_quota(self) -> tuple[LimitStatus, ...]:
        """Return every limit and its use; empty where it does not answer."""
        try:
            reply = await self._ask(ReadQuota())
            return msgspec.json.decode(reply.text, type=tuple[LimitStatus, ...]) if reply.ok else ()
        except (*UNDECODABLE, WorkerLostError):
            return ()

    async def read_queues(self) -> tuple[QueueStatus, ...]:
        """Return the queue of each model; empty where it does not answer."""
        try:
            reply = await self._ask(ReadQueues())
            return msgspec.json.decode(reply.text, type=tuple[QueueStatus, ...]) if reply.ok else ()
        except (*UNDECODABLE, WorkerLostError):
            return ()

    async def drain(self, bound_s: float, *, is_replacement: bool) -> None:
        """Ask it to finish what is in flight and exit; a worker that cannot be asked gets SIGTERM.

        `is_replacement`: its successor serves already, so it goes on answering on the connections it has.
        """
        self.is_draining = True
        try:
            await self._ask(Drain(bound_s=bound_s, is_replacement=is_replacement))
            self.close()
        except WorkerLostError:
            if self.process:
                try_signal(self.process, signal.SIGTERM)

    async def end_within(self, bound_s: float) -> bool:
        """Wait for its exit, then kill it; False where it had to be killed."""
        if self.process is None:
            return True
        is_gone = await wait_or_kill(self.process, bound_s)
        self.close()
        return is_gone

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def _ask(self, command: WorkerCommand) -> WorkerReply:
        """Call, after reconnecting where the connection was lost before."""
        async with self._connecting:
            if self._writer is None:
                await self.connect(bound_s=2.0)
        return await self.call(command)


@dataclass(frozen=True, slots=True)
class WorkerOutput:
    """What one worker has written to the log of all workers, from where that was when it started."""

    path: Path
    start_bytes: int

    def last_line(self) -> str:
        """Return its last words; empty where there are none."""
        try:
            with self.path.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(size - LAST_BYTES, min(self.start_bytes, size)))
                lines = stream.read(LAST_BYTES).decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:SHOWN_CHARACTERS] for line in reversed(lines) if line.strip()), "")


def start_worker(
    settings: Settings, serial: int, listen_fd: int, supervisor_pid: int, *, module: Sequence[str] = GATEWAY_MODULE
) -> WorkerProcess:
    """Start gateway worker number `serial`. What it logs goes to logs/gateway.log."""
    socket_path = settings.worker_socket(serial)
    socket_path.unlink(missing_ok=True)
    argv = [sys.executable, *module, "--worker", str(serial), "--listen-fd", str(listen_fd)]
    folders = {"HEADRACE_STATE_DIR": str(settings.state_dir), "HEADRACE_CACHE_DIR": str(settings.cache_dir)}
    env = {**ALLOCATION, **os.environ, **folders}
    log_path = settings.log_dir / "gateway.log"
    output = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        said = WorkerOutput(log_path, os.fstat(output).st_size)
        os.set_inheritable(listen_fd, True)
        process = spawn([*argv, "--supervisor-pid", str(supervisor_pid)], env=env, output=output, pass_fds=(listen_fd,))
    finally:
        os.close(output)
    return WorkerProcess(serial, socket_path, process, said)


def rotate_output(settings: Settings, limit_bytes: int) -> None:
    """Keep logs/gateway.log within its bound: copied and cut, since running workers hold it open (for appending)."""
    path = settings.log_dir / "gateway.log"
    try:
        if path.stat().st_size > limit_bytes:
            shutil.copyfile(path, path.with_name("gateway.log.1"))
            os.truncate(path, 0)
    except OSError:
        pass  # Not there yet, or a full disk: a log never stops what it logs.
