"""One simulated engine as a process: its listeners, its loading, and its end.

Started by `headrace sim engine` (cli/sim.py). Exit status: 0 after SIGTERM or SIGINT, 1 when it died of a fault.
"""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

import uvloop

from headrace.domain.operator_error import OperatorError
from headrace.engines.simulated.config import EngineConfig
from headrace.engines.simulated.dialects.contract import Ending
from headrace.engines.simulated.faults import FaultKind
from headrace.engines.simulated.http import Connection
from headrace.engines.simulated.service import OUT_OF_MEMORY, Phase, Service

BACKLOG = 4096
"""Connections that may wait to be accepted: a thousand clients come at once."""

GC_THRESHOLDS = (50_000, 20, 50)
"""Collect seldom: almost nothing here is cyclic, and a collection stops a thousand streams."""

POLL_S = 0.02
"""How often it looks whether a fault of the listener has begun or ended."""


def run_engine(config: EngineConfig, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    `announce` gets the URL: where nothing has to be loaded once it answers there, else at once.
    """
    return uvloop.run(EngineProcess(config, announce).run())


def die_as_killed(message: str) -> None:
    """End this process at once, as the kernel or a crash would."""
    print(message, file=sys.stderr, flush=True)  # noqa: T201 # what an operator finds in the engine's log
    os.kill(os.getpid(), signal.SIGKILL)


class EngineProcess:
    """Opens and closes the ports of one service, by its phase and faults."""

    def __init__(
        self, config: EngineConfig, announce: Callable[[str], None], die: Callable[[str], None] = die_as_killed
    ) -> None:
        self._config = config
        self._announce = announce
        self._die = die
        self._server: asyncio.Server | None = None
        self._stopped = asyncio.Event()
        self._signals = 0
        self._trouble: OperatorError | None = None
        """Why it can no longer listen."""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self.service = Service(self._config, die=self._die)
        self.service.on_idle = self._stopped.set
        load_s, is_broken = self._loading()
        if load_s == 0 and not is_broken:
            self.service.become_ready()
            await self._open()
        else:
            self.service.port = _claimable_port(self._config.host, self._config.port)
        self._announce(f"http://{self._config.host}:{self.service.port}")
        bootstrap = await self._listen_for_transfers()
        watching = loop.create_task(self._keep_listening())
        try:
            if await self._load(load_s, is_broken=is_broken):
                await self._stopped.wait()
            if self._trouble is not None:
                raise self._trouble
            return 1 if is_broken and not self._signals else 0
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            await self._close(bootstrap)

    def _loading(self) -> tuple[float, bool]:
        """How long loading takes, and whether it fails at its end."""
        faults = {fault.kind: fault for fault in self._config.faults}
        slow = faults.get(FaultKind.SLOW_LOAD)
        oom = faults.get(FaultKind.OOM)
        is_broken = oom is not None and oom.after_tokens == 1
        return (self._config.load_s if slow is None else slow.load_s), is_broken

    async def _load(self, load_s: float, *, is_broken: bool) -> bool:
        """Wait as long as loading takes; False where it fails or is interrupted."""
        share = self.service.dialect.loading_share_listening()
        await self._pause(load_s * (1 - share))
        if share and not self._stopped.is_set():
            await self._open()
            await self._pause(load_s * share)
        if is_broken:
            print(OUT_OF_MEMORY, file=sys.stderr, flush=True)  # noqa: T201 # what a real one leaves in its log
            return False
        self.service.become_ready()
        return not self._stopped.is_set()

    async def _pause(self, duration_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(duration_s):
                await self._stopped.wait()

    async def _open(self) -> None:
        if self._server is None:
            loop = asyncio.get_running_loop()
            host, port = self._config.host, self.service.port
            try:
                self._server = await loop.create_server(lambda: Connection(self.service), host, port, backlog=BACKLOG)
            except OSError as error:
                raise _cannot_listen(host, port, error) from error
            self.service.port = self._server.sockets[0].getsockname()[1]

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _keep_listening(self) -> None:
        """Listen whenever the phase and the faults want it."""
        while True:
            if self._wants_to_listen():
                try:
                    await self._open()
                except OperatorError as error:
                    self._trouble = error
                    self._stopped.set()
                    return
            elif self.service.phase is not Phase.LOADING:
                self._shut()
            await asyncio.sleep(POLL_S)

    def _wants_to_listen(self) -> bool:
        service = self.service
        if service.phase is Phase.LOADING:
            return False
        if service.phase is Phase.ENDING and service.dialect.ending is Ending.STOPS_LISTENING:
            return False
        return service.faults.active(FaultKind.REFUSE, time.monotonic()) is None

    async def _listen_for_transfers(self) -> asyncio.Server | None:
        """SGLang's bootstrap port, where the decode engine asks."""
        port = self._config.bootstrap_port
        if port is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_server(lambda: Connection(self.service), self._config.host, port)
        except OSError as error:
            raise _cannot_listen(self._config.host, port, error) from error

    def _on_signal(self) -> None:
        """The first signal ends as the engine does; the second does not wait."""
        self._signals += 1
        service = self.service
        if self._signals > 1 or service.phase is Phase.LOADING:
            self._stopped.set()
            return
        service.begin_ending()
        if service.is_idle:
            self._stopped.set()
        bound_s = self._config.shutdown_timeout_s
        if service.dialect.ending is Ending.REFUSES:
            asyncio.get_running_loop().call_later(bound_s, self._end_drain)

    def _end_drain(self) -> None:
        self.service.cut_all()
        self._stopped.set()

    async def _close(self, bootstrap: asyncio.Server | None) -> None:
        self._shut()
        if bootstrap is not None:
            bootstrap.close()
        self.service.close()
        await asyncio.sleep(0)


def _claimable_port(host: str, port: int) -> int:
    """Return `port`, or a free one for 0, of which nobody else is the owner now: it is opened once all is loaded.

    Raises: OperatorError.
    """
    try:
        with socket.create_server((host, port)) as listener:
            return listener.getsockname()[1]
    except OSError as error:
        raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> OperatorError:
    if error.errno == errno.EADDRINUSE:
        said = f"cannot listen on {host}:{port}: another process has that port"
        return OperatorError(said, hint="Give another --port; 0 takes a free one.")
    why = os.strerror(error.errno) if error.errno else str(error)
    return OperatorError(f"cannot listen on {host}:{port}: {why}", hint="Correct --host and --port.")
