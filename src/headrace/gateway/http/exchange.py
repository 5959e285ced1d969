"""One request and its one answer on a caller's connection: what the six steps read from and write to."""

from typing import Protocol

import msgspec

from headrace.domain.errors import RequestError
from headrace.gateway.http.wire import LAST_CHUNK, chunk, status_line


class Connection(Protocol):
    """What an exchange needs of its connection."""

    @property
    def date_line(self) -> bytes: ...

    @property
    def is_closing_soon(self) -> bool:
        """The gateway is draining: answers carry `connection: close`."""
        ...

    def write(self, data: bytes) -> None: ...

    def exchange_finished(self, *, closes: bool) -> None:
        """The current answer is out: go on with the next request, or close."""
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


class Exchange(msgspec.Struct, eq=False):
    """One request on one connection. A Struct, since one is made per request.

    Concurrency: belongs to the event loop. Exactly one of `respond` or `begin_stream` ... `end_stream` is called,
    unless the caller leaves first; later calls do nothing, so that a late answer cannot become
    a second response.
    """

    connection: "Connection | None"
    method: bytes
    path: bytes
    """Without the query string, which no served path uses."""
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
    source: AnswerSource | None = None
    state: object = None
    """What the pipeline remembers between head and body; opaque to the wire."""

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. `headers` are complete lines; length, date and connection are added here."""
        connection = self.connection
        if connection is None or self.is_done:
            return
        self.is_done = True
        tail = b"connection: close\r\n\r\n" if self.must_close else b"\r\n"
        if self.method == b"HEAD":
            length, body = len(body), b""
        else:
            length = len(body)
        framing = b"content-length: %d\r\n" % length if status != 204 else b""  # RFC 9110, section 8.6
        connection.write(status_line(status) + connection.date_line + headers + framing + tail + body)
        self._finish()

    def begin_stream(self, headers: bytes) -> None:
        """Send the head of a streamed answer: the status can no longer change."""
        connection = self.connection
        if connection is None or self.is_done or self.is_streaming:
            return
        self.is_streaming = True
        if not self.is_chunkable:
            self.closes = True
        framing = b"transfer-encoding: chunked\r\n" if self.is_chunkable else b""
        tail = b"connection: close\r\n\r\n" if self.must_close else b"\r\n"
        connection.write(status_line(200) + connection.date_line + headers + framing + tail)

    def send(self, events: bytes) -> None:
        """Send whole events of a stream."""
        connection = self.connection
        if connection is None or self.is_done or not events:
            return
        connection.write(chunk(events) if self.is_chunkable else events)

    def end_stream(self) -> None:
        """End a streamed answer cleanly."""
        connection = self.connection
        if connection is None or self.is_done:
            return
        self.is_done = True
        if self.is_chunkable:
            connection.write(LAST_CHUNK)
        self._finish()

    def detach(self) -> None:
        """Forget the connection; called when it is gone."""
        self.connection = None
        self.source = None

    @property
    def must_close(self) -> bool:
        connection = self.connection
        return self.closes or (connection is not None and connection.is_closing_soon)

    def _finish(self) -> None:
        connection, self.connection = self.connection, None
        self.source = None
        if connection is not None:
            connection.exchange_finished(closes=self.closes or connection.is_closing_soon)
