"""Follows one rank of an engine over ZeroMQ: its events as they come, and those that were missed when asked for again.

Needs the extra `kv-events`. All waiting is the event loop's; ZeroMQ has a thread of its own for the wire.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import structlog
import zmq
import zmq.asyncio

from headrace.engines.contract import EVENT_PORT_OFFSET, REPLAY_PORT_OFFSET
from headrace.gateway.kv_events.core.batch import LARGEST_BATCH_BYTES, read_events, split_batch
from headrace.gateway.kv_events.core.book import CacheBook
from headrace.gateway.kv_events.core.changes import Change, MalformedError

KEPT_MESSAGES = 2000
"""Messages that may wait to be read here; more are dropped, and asked for again. Chosen: some seconds of a busy
engine."""
SLICE_EVENTS = 1000
"""Events read before others get their turn: half a millisecond, measured on a busy AMD EPYC core."""
REPLAY_S = 3.0
"""Longest silence of an engine that was asked for missed messages. They look every 0.1 s. Chosen."""
MOST_REPLAYED = 20_000
"""Messages in one answer; engines keep 10,000."""
NO_REPLAY_S = 60.0
"""An engine that did not answer such a question is not asked again for so long. Chosen."""
LOG_AGAIN_S = 60.0
"""Between two log lines on messages that we stumble over. Chosen."""
HEARTBEAT_MS = 5000
"""ZeroMQ's own: finds a connection whose other end has gone without a word."""
END_NUMBER = (-1).to_bytes(8, "big", signed=True)
"""Ends the answer to a question for missed messages. Source: vLLM and SGLang, kv_events.py."""

log = structlog.get_logger("headrace.gateway")


def context() -> zmq.asyncio.Context:
    """Return the process's ZeroMQ context, for one event loop."""
    return zmq.asyncio.Context()


class Subscriber:
    """One rank of one engine. Concurrency: event loop only."""

    def __init__(
        self, zmq_context: zmq.asyncio.Context, *, host: str, port: int, rank: int, book: CacheBook,
        on_change: Callable[[], None],
    ) -> None:  # fmt: skip
        shown = f"[{host}]" if ":" in host else host
        self._context = zmq_context
        self._rank = rank
        self._book = book
        self._on_change = on_change
        self._is_ipv6 = ":" in host
        self._events_at = f"tcp://{shown}:{port + EVENT_PORT_OFFSET + rank}"
        self._replay_at = f"tcp://{shown}:{port + REPLAY_PORT_OFFSET + rank}"
        self._asks_again_mono_s = 0.0
        self._logs_again_mono_s = 0.0

    async def run(self) -> None:
        """Follow until cancelled. ZeroMQ connects again by itself."""
        socket = self._open(zmq.SUB)
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        socket.connect(self._events_at)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(monitor))
                group.create_task(self._listen(socket))
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
            socket.close(linger=0)

    async def _watch(self, monitor: zmq.asyncio.Socket) -> None:
        """Whoever listens there now may be another process than before."""
        while True:
            await monitor.recv_multipart()
            self._book.doubt(self._rank)

    async def _listen(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            frames: list[bytes] = await socket.recv_multipart()
            try:
                await self._take(frames)
                self._on_change()
            except Exception:  # noqa: BLE001 (boundary of one message: whatever it holds, the next ones are heard)
                self._note_bug()
            await asyncio.sleep(0)  # what waits already comes without a pause

    def _open(self, kind: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, KEPT_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_BATCH_BYTES)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        if self._is_ipv6:
            socket.setsockopt(zmq.IPV6, 1)
        return socket

    async def _take(self, frames: list[bytes]) -> None:
        """One message: topic, number, payload."""
        if len(frames) != 3 or len(frames[1]) != 8:
            self._book.malformed += 1
            return
        number = int.from_bytes(frames[1], "big", signed=True)
        if not self._book.believes(self._rank, number):
            self._book.malformed += 1
            return
        missing = self._book.missing_before(self._rank, number)
        if missing and monotonic() >= self._asks_again_mono_s:
            await self._replay(missing)
        await self._add(number, frames[2])

    def _note_bug(self) -> None:
        """Log it, now and then: messages come many a second."""
        self._book.lose_sight(self._rank)
        if monotonic() >= self._logs_again_mono_s:
            self._logs_again_mono_s = monotonic() + LOG_AGAIN_S
            log.exception("internal bug with a message of KV events; it is passed over", endpoint=self._events_at)

    async def _add(self, number: int, payload: bytes) -> None:
        changes: list[Change] = []
        try:
            batch = split_batch(payload)
            for start in range(0, len(batch.events), SLICE_EVENTS):
                found, unknown = read_events(batch.events[start : start + SLICE_EVENTS])
                changes += found
                self._book.unknown += unknown
                if len(batch.events) > SLICE_EVENTS:
                    await asyncio.sleep(0)
        except MalformedError:
            self._book.lose(self._rank, number)
            return
        self._book.add(self._rank, number, tuple(changes))

    async def _replay(self, missing: range) -> None:
        """Ask for missed messages, and add up those that come before the first that is here."""
        socket = self._open(zmq.DEALER)
        came = 0
        try:
            socket.connect(self._replay_at)
            with suppress(zmq.Again):  # nobody is there to be asked
                question = [b"", missing.start.to_bytes(8, "big")]
                await socket.send_multipart(question)  # pyright: ignore[reportUnknownMemberType] # its list has no type
            for _ in range(MOST_REPLAYED):
                async with asyncio.timeout(REPLAY_S):
                    frames = await socket.recv_multipart()
                came += 1
                if len(frames) < 3 or frames[-2] == END_NUMBER:
                    return
                number = int.from_bytes(frames[-2], "big")
                if missing.start <= number < missing.stop:
                    await self._add(number, frames[-1])
                    self._book.replayed += 1
                await asyncio.sleep(0)
        except TimeoutError:
            if not came:
                self._asks_again_mono_s = monotonic() + NO_REPLAY_S
        finally:
            socket.close(linger=0)
