"""One request of a hand-over to one engine: its bytes, its answer, and the bound on its time.

Decode's answer is held back until its first token: until then nothing has been sent to the caller, and the request can
still go to another engine. From then on all goes on to the delivery. Counterpart: `handover.py`.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from headrace.domain.errors import ERRORS
from headrace.domain.request import InferenceRequest
from headrace.engines.handover import LegRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.attempt_request import leg_head
from headrace.gateway.forwarding.streams.watch import StreamWatch, watch_for
from headrace.gateway.forwarding.whole_answer import read_envelope
from headrace.gateway.handover.core.events import Event, Leg, LegAnswered, LegLost, LegRefused
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import AnswerReader, LossReason
from headrace.gateway.http.sse import EventCutter, EventTooLargeError, is_event_stream

FAREWELL_S = 30.0
"""A call that frees what an engine holds is given up after so long: a busy one comes to it late, and nobody waits."""


class LegOwner(Protocol):
    """The hand-over, as its legs see it."""

    @property
    def request(self) -> InferenceRequest: ...

    @property
    def reader(self) -> AnswerReader:
        """Who gets decode's answer."""
        ...

    @property
    def longest_answer_bytes(self) -> int: ...

    @property
    def longest_event_bytes(self) -> int: ...

    def told(self, event: Event) -> None: ...

    def was_refused(self, leg: Leg, detail: str) -> None:
        """Nobody listens there."""
        ...

    def decode_speaks(self, call: "LegCall") -> None:
        """Its first token is here, or its whole answer: `call` goes on to the delivery."""
        ...


@dataclass(slots=True, eq=False)
class LegCall:
    """Implements `AnswerReader` for one leg. Concurrency: event loop only."""

    owner: LegOwner
    leg: Leg
    endpoint: Endpoint
    keeps_body: bool
    """False: what it says is of no account, only that it ends."""
    timer: asyncio.TimerHandle | None = None
    sending: Sending | None = None
    sent_mono_s: float = 0.0
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    blocks: list[bytes] = field(default_factory=list[bytes])
    size_bytes: int = 0
    is_handed: bool = False
    """What comes goes straight on."""
    _watch: StreamWatch | None = None
    _cutter: EventCutter | None = None

    def send(self, head: bytes, body: bytes) -> None:
        """Never on a pooled connection: one that went stale would be taken for a dead engine, and no leg is sent
        twice."""
        self.sent_mono_s = monotonic()
        self.sending = self.endpoint.connections.send(head, body, self, fresh=True)

    def stop_clock(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def cancel(self) -> None:
        """Close its connection; nothing more is heard of it."""
        self.stop_clock()
        sending, self.sending = self.sending, None
        if sending is not None:
            sending.cancel()

    @property
    def body(self) -> bytes:
        return b"".join(self.blocks)

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    # --- AnswerReader

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        self.status, self.headers = status, headers
        is_stream = self.owner.request.is_stream and is_event_stream(headers)
        if self.leg is Leg.DECODE and self.is_success and is_stream:
            self._watch = watch_for(self.owner.request)
            self._cutter = EventCutter(self.owner.longest_event_bytes)

    def answer_bytes(self, data: bytes) -> None:
        self.endpoint.last_byte_mono_s = monotonic()
        if self.is_handed:
            self.owner.reader.answer_bytes(data)
            return
        if not self.keeps_body and self.is_success:
            return
        self.blocks.append(data)
        self.size_bytes += len(data)
        if self.size_bytes > self.owner.longest_answer_bytes:
            self.cancel()
            self.owner.told(LegLost(self.leg))
        elif self._watch is not None and self._cutter is not None:
            self._look(self._watch, self._cutter, data)

    def answer_complete(self) -> None:
        self.sending = None
        self.stop_clock()
        if self.is_handed:
            self.owner.reader.answer_complete()
        elif not self.is_success:
            self.owner.told(self._refusal(self.status, self.body))
        elif self.leg is not Leg.DECODE:
            self.owner.told(LegAnswered(self.leg, self.body))
        else:
            self._decode_complete()

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self.sending = None
        self.stop_clock()
        if self.is_handed:
            self.owner.reader.answer_lost(reason, detail)
            return
        if reason is LossReason.CONNECT:
            self.owner.was_refused(self.leg, detail)
        self.owner.told(LegLost(self.leg))

    def crashed(self, bug: Exception) -> None:
        self.owner.reader.crashed(bug)

    # --- inside

    def _look(self, watch: StreamWatch, cutter: EventCutter, data: bytes) -> None:
        """Whether the first token has come: a role or a comment is none."""
        try:
            whole = cutter.feed(data)
        except EventTooLargeError:
            self.cancel()
            self.owner.told(LegLost(self.leg))
            return
        watch.feed(whole)
        if watch.error is not None:
            error = watch.error
            self.cancel()
            self.owner.told(self._refusal(500, error))
        elif watch.has_output or watch.is_done:
            self.owner.decode_speaks(self)

    def _decode_complete(self) -> None:
        """Of a stream: it ended without a token. Of a whole answer: it is here, unless it is none after all."""
        envelope = None if self._watch is not None else read_envelope(self.body)
        if envelope is None:
            self.owner.told(LegLost(self.leg))
        elif envelope.failure is not None:
            self.owner.told(self._refusal(500, envelope.failure))
        else:
            self.owner.decode_speaks(self)
            self.owner.reader.answer_complete()

    def _refusal(self, status: int, body: bytes) -> LegRefused:
        code = self.endpoint.driver.translate_error(status, body).code
        return LegRefused(self.leg, status, body, is_callers_fault=not ERRORS[code].may_fail_over)


class Farewell:
    """A call that makes an engine give up what it holds; nobody waits for its answer. Implements `AnswerReader`."""

    def __init__(
        self, endpoint: Endpoint, request: LegRequest, loop: asyncio.AbstractEventLoop, then: Callable[[], None] | None
    ) -> None:
        self._then = then
        body = request.body(b"")
        head = leg_head(b"", endpoint, b"", b"", request, len(body))
        self._sending = endpoint.connections.send(head, body, self, fresh=True)
        self._timer = loop.call_later(FAREWELL_S, self._give_up)

    def _give_up(self) -> None:
        self._sending.cancel()
        self._over()

    def _over(self) -> None:
        self._timer.cancel()
        if self._then is not None:
            self._then()

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        pass

    def answer_bytes(self, data: bytes) -> None:
        pass

    def answer_complete(self) -> None:
        self._over()

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        self._over()

    def crashed(self, bug: Exception) -> None:
        self._timer.cancel()


def weigh_file(
    path: Path, loop: asyncio.AbstractEventLoop, within_s: float, then: Callable[[int | None], None]
) -> None:
    """Tell `then` once how large a file is, without holding up the loop; None: it is not to be seen from here, or not
    in time."""
    is_told = False

    def over(looked: "asyncio.Future[int | None] | None" = None) -> None:
        nonlocal is_told
        if not is_told:
            is_told = True
            timer.cancel()
            then(None if looked is None or looked.cancelled() else looked.result())

    timer = loop.call_later(within_s, over)
    loop.run_in_executor(None, _size_bytes, path).add_done_callback(over)


def _size_bytes(path: Path) -> int | None:
    """Opened, since a network folder tells the size of today only then; otherwise as the folder has it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
    except PermissionError:  # another user's file, in a folder that may be read
        return _listed_bytes(path)
    except OSError:
        return None


def _listed_bytes(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def remove_file(path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Remove a file, if it is there, without holding up the loop: the folder may be on a network."""
    loop.run_in_executor(None, _unlink, path)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # the sweep of the folder comes by again
        return
