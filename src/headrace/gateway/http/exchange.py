"""One request and its one answer on a caller's connection: what the six steps read from and write to."""

from typing import TYPE_CHECKING, Protocol

from headrace.domain.errors import RequestError
from headrace.gateway.http.wire import LAST_CHUNK, status_line

if TYPE_CHECKING:
    from headrace.gateway.http.caller_connection import CallerConnection


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


class Exchange:
    """One request on one connection.

    Concurrency: belongs to the event loop. Exactly one of `respond` or `begin_stream` ... `end_stream` is called,
    unless the caller leaves first or `break_off` ends it; later calls do nothing, so that a late answer cannot become
    a second response.
    """

    __slots__ = (
        "_connection",
        "body",
        "closes",
        "error",
        "headers",
        "is_chunkable",
        "is_done",
        "is_streaming",
        "method",
        "path",
        "received_mono_s",
        "source",
        "state",
    )

    def __init__(self, connection: "CallerConnection", method: bytes, path: bytes, headers: dict[bytes, bytes]) -> None:
        self._connection: CallerConnection | None = connection
        self.method = method
        self.path = path
        """Without the query string, which no served path uses."""
        self.headers = headers
        """Names in lower case; the first value of each."""
        self.body = b""
        self.received_mono_s = 0.0
        """When the request was complete."""
        self.error: RequestError | None = None
        """Set where the request was refused before it was complete."""
        self.closes = False
        """The connection ends after this answer."""
        self.is_chunkable = True
        """False for HTTP/1.0 callers: a stream then ends with the connection."""
        self.is_done = False
        self.is_streaming = False
        self.source: AnswerSource | None = None
        self.state: object = None
        """What the pipeline remembers between head and body; opaque to the wire."""

    @property
    def is_caller_here(self) -> bool:
        return self._connection is not None

    def respond(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a whole answer. `headers` are complete lines; length, date and connection are added here."""
        connection = self._connection
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
        connection = self._connection
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
        connection = self._connection
        if connection is None or self.is_done or not events:
            return
        connection.write(b"%x\r\n%b\r\n" % (len(events), events) if self.is_chunkable else events)

    def end_stream(self) -> None:
        """End a streamed answer cleanly."""
        connection = self._connection
        if connection is None or self.is_done:
            return
        self.is_done = True
        if self.is_chunkable:
            connection.write(LAST_CHUNK)
        self._finish()

    def break_off(self) -> None:
        """Cut the connection: the caller must see that the answer is not complete."""
        connection = self._connection
        self.is_done = True
        self.detach()
        if connection is not None:
            connection.abort()

    def detach(self) -> None:
        """Forget the connection; called when it is gone."""
        self._connection = None
        self.source = None

    @property
    def must_close(self) -> bool:
        connection = self._connection
        return self.closes or (connection is not None and connection.service.is_draining)

    def _finish(self) -> None:
        connection, self._connection = self._connection, None
        self.source = None
        if connection is not None:
            connection.exchange_finished(closes=self.closes or connection.service.is_draining)
