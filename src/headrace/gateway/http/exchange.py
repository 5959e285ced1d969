"""One request and its one answer on a caller's connection: what the six steps read from and write to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.domain.errors import RequestError
from headrace.gateway.http.wire import CHUNK, CLOSE, LAST_CHUNK, DateLine, status_line


class Surroundings(Protocol):
    """What all connections of one gateway share."""

    date: DateLine

    @property
    def is_draining(self) -> bool:
        """New connections and keep-alive have ended: answers carry `connection: close`."""
        ...


class Connection(Protocol):
    """What an exchange needs of its connection."""

    @property
    def surroundings(self) -> Surroundings: ...

    @property
    def write(self) -> Callable[[bytes], None]:
        """Send bytes of the current answer."""
        ...

    @property
    def peer(self) -> str:
        """IP address of the other end; empty where it is gone or has none."""
        ...

    @property
    def repeated(self) -> Sequence[bytes]:
        """Names of the headers that came twice in the head that is being judged."""
        ...

    def finish(self, last: bytes, *, closes: bool) -> None:
        """Send the last bytes of the current answer; go on with the next request, or close."""
        ...

    def hold_reading(self, is_held: bool) -> None:
        """Stop reading, or go on: whoever takes a body by the piece cannot keep up."""
        ...

    def abort(self) -> None:
        """Cut the connection, where an answer that has begun cannot be completed."""
        ...


class Inlet(Protocol):
    """Takes a body by the piece, as it arrives; for bodies that are too large to hold."""

    def feed(self, body: bytes) -> None: ...

    def cut(self) -> None:
        """The rest will never come."""
        ...


class AnswerSource(Protocol):
    """Whoever is producing the answer, told what happens on the caller's side.

    Concurrency: called from the event loop, never re-entrantly from a write.
    """

    def caller_left(self) -> None:
        """The caller's connection is gone; nothing can be sent any more."""
        ...

    def caller_is_slow(self) -> None:
        """More than write_buffer_bytes wait for the caller: stop producing."""
        ...

    def caller_caught_up(self) -> None:
        """The buffer has drained: go on."""
        ...


@dataclass(slots=True, eq=False)
class Exchange:
    """One request on one connection. With slots: setting a field of a msgspec Struct costs twenty times as much.

    Concurrency: belongs to the event loop. Exactly one of `respond` or `begin_stream` ... `end_stream` is called,
    unless the caller leaves first; later calls do nothing, so that a late answer cannot become
    a second response.
    """

    connection: "Connection | None"
    method: bytes
    path: bytes
    """Without the query string."""
    headers: dict[bytes, bytes]
    """Names in lower case; the first value of each."""
    is_chunkable: bool = True
    """False for HTTP/1.0 callers: a stream then ends with the connection."""
    closes: bool = False
    """The connection ends after this answer."""
    body: bytes = b""
    received_mono_s: float = 0.0
    """When the request was complete."""
    error: RequestError | None = None
    """Set where the request was refused before it was complete."""
    is_done: bool = False
    is_streaming: bool = False
    stream_head: bytes = b""
    """Head of a streamed answer that goes out with the first events: one packet, one call of the system."""
    source: AnswerSource | None = None
    inlet: Inlet | None = None
    """Set by whoever judged the head, where the body is not to be held in memory."""
    inlet_bytes: int = 0
    """Longest body that goes into `inlet`."""
    query: bytes = b""
    """Query string; read for files and batches alone."""
    state: object | None = None
    """What the pipeline remembers between head and body; opaque to the wire."""

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. `headers` are complete lines; length, date and connection are added here."""
        connection = self.connection
        if connection is None or self.is_done:
            return
        surroundings = connection.surroundings
        start = surroundings.date.ok if status == 200 else status_line(status) + surroundings.date.line
        closes = self.closes or surroundings.is_draining
        if closes:
            headers += CLOSE
        if status != 204:  # RFC 9110, section 8.6
            headers += b"content-length: %d\r\n" % len(body)
        if self.method == b"HEAD":
            body = b""
        self._finish(connection, b"%b%b\r\n%b" % (start, headers, body), closes=closes)

    def begin_stream(self, headers: bytes) -> None:
        """Begin a streamed answer: the status can no longer change. Its head goes out with what is sent next."""
        connection = self.connection
        if connection is None or self.is_done or self.is_streaming:
            return
        self.is_streaming = True
        if self.is_chunkable:
            headers += b"transfer-encoding: chunked\r\n"
        else:
            self.closes = True
        surroundings = connection.surroundings
        if self.closes or surroundings.is_draining:
            headers += CLOSE
        self.stream_head = b"%b%b\r\n" % (surroundings.date.ok, headers)

    def send(self, events: bytes) -> None:
        """Send whole events of a stream."""
        connection = self.connection
        if connection is not None and events and not self.is_done:
            piece = CHUNK % (len(events), events) if self.is_chunkable else events
            if self.stream_head:
                piece, self.stream_head = self.stream_head + piece, b""
            connection.write(piece)

    def end_stream(self) -> None:
        """End a streamed answer cleanly."""
        connection = self.connection
        if connection is not None and not self.is_done:
            closes = self.closes or connection.surroundings.is_draining
            self._finish(connection, self.stream_head + (LAST_CHUNK if self.is_chunkable else b""), closes=closes)

    def detach(self) -> None:
        """Forget the connection; called when it is gone."""
        if self.inlet is not None:
            self.inlet.cut()
        self.connection = self.source = None

    def _finish(self, connection: Connection, last: bytes, *, closes: bool) -> None:
        self.is_done = True
        self.connection = self.source = None
        connection.finish(last, closes=closes)
