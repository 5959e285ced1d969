"""The worker's ear: a Unix socket on which its supervisor sends commands, one JSON object a line.

Counterpart: `domain/worker.py` for the words, `fleet/deploy` for the other end.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from headrace.declaration.gateway_plan import GatewayPlan
from headrace.domain.errors import RequestError
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
)
from headrace.gateway.endpoints.addresses import PlanError
from headrace.gateway.worker import Worker

LINE_BYTES = 256 * 1024 * 1024
"""Largest command: a plan, or ten thousand keys, is far below."""
log = structlog.get_logger("headrace.gateway")

_decode = msgspec.json.Decoder(WorkerCommand).decode
_decode_plan = msgspec.json.Decoder(GatewayPlan).decode
_encode = msgspec.json.Encoder().encode


class ControlLink:
    """Serves the supervisor's commands against one worker. Only our own user can open the socket (mode 0600)."""

    def __init__(self, worker: Worker, on_connect: Callable[[], None], on_disconnect: Callable[[], None]) -> None:
        self._worker = worker
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer commands until the supervisor closes the connection."""
        self._on_connect()
        try:
            while line := await reader.readline():
                writer.write(_encode(await self.answer(line)) + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            log.warning("control link broke", error=str(error))
        except asyncio.CancelledError:
            pass  # the worker ends; let through, it is a traceback in the log, since asyncio asks for its error (3.11)
        finally:
            writer.close()
            self._on_disconnect()

    async def answer(self, line: bytes) -> WorkerReply:
        """Carry out one command; whatever is wrong with it is said, and nothing has changed then."""
        try:
            command = _decode(line)
        except UNDECODABLE as error:
            return WorkerReply(ok=False, message=f"not a command: {error}")
        worker = self._worker
        if isinstance(command, Configure):
            return await _told(lambda: worker.configure(_decode_plan(command.plan)))
        if isinstance(command, SetKeys):
            worker.set_keys(command.keys)
            return WorkerReply(ok=True)
        if isinstance(command, SetSpent):
            worker.set_spent(command.spent)
            return WorkerReply(ok=True)
        if isinstance(command, Drain):
            worker.drain(command.bound_s, is_replacement=command.is_replacement)
            return WorkerReply(ok=True)
        if isinstance(command, ReadRouting):
            return WorkerReply(ok=True, text=_encode(worker.routing_status()).decode())
        if isinstance(command, ReadMisses):
            return WorkerReply(ok=True, text=_encode(worker.miss_status()).decode())
        if isinstance(command, ReadSplits):
            return WorkerReply(ok=True, text=_encode(worker.loads.status()).decode())
        if isinstance(command, ExplainRoute):
            return _explained(worker, command)
        if isinstance(command, ReadMetrics):
            return WorkerReply(ok=True, text=worker.metrics_text())
        if isinstance(command, ReadQuota):
            return WorkerReply(ok=True, text=_encode(worker.quota_status()).decode())
        if isinstance(command, ReadQueues):
            return WorkerReply(ok=True, text=_encode(worker.queue_statuses()).decode())
        assert isinstance(command, ReadStatus)
        return WorkerReply(ok=True, text=_encode(worker.status()).decode())


def _explained(worker: Worker, command: ExplainRoute) -> WorkerReply:
    try:
        return WorkerReply(ok=True, text=_encode(worker.explain_route(command)).decode())
    except RequestError as error:
        return WorkerReply(ok=False, message=f"{error.code.value}: {error.message}")


async def _told(action: Callable[[], Awaitable[None]]) -> WorkerReply:
    try:
        await action()
    except (*UNDECODABLE, PlanError, OSError) as error:
        return WorkerReply(ok=False, message=str(error))
    except Exception as bug:  # the task boundary: the supervisor must get a reply, the log the traceback
        log.exception("internal bug", error=repr(bug))
        return WorkerReply(ok=False, message=f"internal bug: {bug!r}")
    return WorkerReply(ok=True)
