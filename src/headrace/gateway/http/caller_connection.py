"""One caller's connection: bytes to Exchanges, in order, within the declared limits.

Requests on one connection are answered one after the other (pipelining is serialised). Anything that two HTTP parsers
could read differently is refused. Counterpart: `engine_connection.py`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from time import monotonic
from typing import Protocol, cast

import httptools
import structlog

from headrace.declaration.gateway_plan import LimitsPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.http.direct_writer import write_nothing, writer_of
from headrace.gateway.http.exchange import Exchange, Inlet, Surroundings
from headrace.gateway.http.wire import CONTINUE

log = structlog.get_logger("headrace.gateway")
PIPELINE_DEPTH = 64
"""Requests that may wait on one connection, with no more bytes together than one body may have; a client that sends
more without reading is cut off. Chosen."""
LINGER_S = 2.0
"""After an early refusal the rest of the request is read and dropped for so long, so that the caller can read why."""
SHORT_BODY_BYTES = 65536
"""A refused request with a body up to this size is read to its end, so that its connection lives on. Chosen."""
SMALL_PIECE_BYTES = 1024
"""Pieces of a body that are shorter, after the first, are put together as they come. Chosen."""
SMALL_PIECES, LEAST_PIECE_BYTES = 65536, 64
"""A body in more pieces than that must have so many bytes in each, on average: reading one of thirty megabytes in
chunks of two bytes takes seconds, in which nobody else is served. Chosen."""
SINGLE_HEADERS = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"authorization", b"x-api-key", b"content-type"}
)
"""Headers that must not be repeated: two parsers could each believe another one. Source: RFC 9112, section 6.3."""


class Service(Surroundings, Protocol):
    """What a connection needs of the gateway."""

    @property
    def limits(self) -> LimitsPlan: ...

    @property
    def head_arrived(self) -> Callable[[Exchange], None]:
        """Judges the head before any body is read; sets `exchange.error` to refuse."""
        ...

    @property
    def request_arrived(self) -> Callable[[Exchange], None]:
        """The request is complete, or `exchange.error` says why it never will be."""
        ...

    @property
    def caller_left(self) -> Callable[[Exchange], None]:
        """The caller has gone before anything began to answer it."""
        ...

    def longest_body(self, path: bytes) -> int:
        """Bytes that a body at `path` may have; asked only where it is over `limits.body_bytes`."""
        ...

    def connection_opened(self, connection: "CallerConnection") -> bool:
        """False: too many, the connection is closed at once."""
        ...

    def connection_closed(self, connection: "CallerConnection") -> None: ...


class Phase(Enum):
    """What the connection waits for; each has its own time-out."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    LINGER = auto()
    """Refused early: what still comes is dropped."""
    CLOSED = auto()


IDLE, HEAD, BODY, ANSWER, LINGER, CLOSED = Phase
"""Module names, since looking a member up on its class costs a tenth of a microsecond, a dozen times a request."""


NOT_SET = 0.0
"""A deadline that the next sweep sets: reading a clock for every answer would be dearer than a quarter second more."""


class CallerConnection(asyncio.Protocol):
    """Transport side of one caller. Concurrency: event loop only."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self.service = self.surroundings = service
        self._loop = loop
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.write: Callable[[bytes], None] = write_nothing
        """Send bytes of the current answer, once there is a transport."""
        self._parser = httptools.HttpRequestParser(self)
        self._phase = IDLE
        self._deadline_mono_s = 0.0
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self.repeated: list[bytes] = []
        """Names of the headers that came twice in the current head."""
        self._head_bytes = 0
        self._read_bytes = self._fed_bytes = 0
        """At least as many bytes as the head has: what has come of it, and the read that completes it."""
        self._body: list[bytes | bytearray] = []
        self._body_bytes = self._pieces = 0
        self._incoming: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._current: Exchange | None = None
        self._is_slow_since: float | None = None
        self._slow_bytes = 0
        self._upgrade_body_bytes = 0
        """Body bytes still to come of a request that offered an upgrade; the parser leaves those to us."""

    @property
    def peer(self) -> str:
        """IP address of the caller; empty where it is gone."""
        address = self._transport.get_extra_info("peername")
        return address[0] if isinstance(address, tuple) and address else ""  # pyright: ignore[reportUnknownVariableType]

    # --- transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.write = writer_of(self._transport)
        self._transport.set_write_buffer_limits(high=self.service.limits.write_buffer_bytes)
        if not self.service.connection_opened(self):
            self.abort()

    def data_received(self, data: bytes) -> None:
        before = self._phase
        if before is LINGER or before is CLOSED:
            return
        if self._upgrade_body_bytes:
            data = self._take_upgrade_body(data)
            if not data:
                return
            before = self._phase
        self._read_bytes = len(data)
        self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as bug:
            log.exception("internal bug", error=repr(bug.__context__))
            self._refuse(RequestError(ErrorCode.INTERNAL_BUG, "headrace failed while it read the request; report it"))
        except httptools.HttpParserError as error:
            self._refuse(RequestError(ErrorCode.INVALID_REQUEST, f"malformed HTTP request: {error}"))
        phase = self._phase
        if phase is HEAD or phase is BODY:
            self._read_partly(phase, before, len(data))

    def eof_received(self) -> bool:
        return False  # a caller that closes its side has left; the transport closes and connection_lost follows

    def connection_lost(self, exc: Exception | None) -> None:
        self._phase = CLOSED
        current, self._current = self._current, None
        incoming, self._incoming = self._incoming, None
        unanswered = [exchange for exchange in (current, *self._waiting, incoming) if exchange is not None]
        self._waiting.clear()
        # The parser holds our callbacks: without this cut only the collector would free a closed connection.
        self._parser = cast(httptools.HttpRequestParser, None)
        for exchange in unanswered:
            source = exchange.source
            exchange.detach()
            if source is not None:
                source.caller_left()
            else:
                self.service.caller_left(exchange)
        self.service.connection_closed(self)

    def pause_writing(self) -> None:
        self._is_slow_since = monotonic()
        self._slow_bytes = self._transport.get_write_buffer_size()
        if self._current is not None and self._current.source is not None:
            self._current.source.caller_is_slow()

    def resume_writing(self) -> None:
        self._is_slow_since = None
        if self._current is not None and self._current.source is not None:
            self._current.source.caller_caught_up()

    # --- parser events

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self.repeated = []
        self._head_bytes = 0
        self._fed_bytes = self._read_bytes
        self._body = []
        self._body_bytes = self._pieces = 0
        self._incoming = None
        if self._phase is not LINGER:
            self._phase = HEAD

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._headers:
            self.repeated.append(name)
        else:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        if self._phase is LINGER:
            return
        parser, headers = self._parser, self._headers
        path, _, query = self._url.partition(b"?")
        exchange = self._incoming = Exchange(
            self,
            parser.get_method(),
            path,
            headers,
            parser.get_http_version() == "1.1",
            not parser.should_keep_alive(),
        )
        if query:
            exchange.query = query
        exchange.error = self._refusal_of_head(exchange)
        if exchange.error is None:
            self.service.head_arrived(exchange)
        if exchange.error is not None and self._has_long_body(headers):
            self._refuse(exchange.error)
            return
        self._phase = BODY
        if b"expect" in headers and exchange.error is None and self._current is None:
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        incoming = self._incoming
        if incoming is None or self._phase is LINGER:
            return
        self._body_bytes += len(body)
        self._pieces += 1
        if self._pieces > SMALL_PIECES and self._body_bytes < self._pieces * LEAST_PIECE_BYTES:
            message = f"the body comes in pieces of less than {LEAST_PIECE_BYTES} bytes; send larger chunks"
            self._refuse(RequestError(ErrorCode.INVALID_REQUEST, message))
            return
        if incoming.inlet is not None:
            self._feed(incoming, incoming.inlet, body)
            return
        if len(body) < SMALL_PIECE_BYTES and self._body:
            self._keep_small(body)
        else:
            self._body.append(body)
        if self._body_bytes > self.service.limits.body_bytes:
            self._refuse(self._body_too_large(self._body_bytes, self.service.limits.body_bytes))

    def on_message_complete(self) -> None:
        exchange, self._incoming = self._incoming, None
        if exchange is None or self._phase is LINGER:
            return
        if self._parser.should_upgrade() and not self._body:
            self._upgrade_body_bytes = int(exchange.headers.get(b"content-length", b"0"))
            if self._upgrade_body_bytes:
                self._incoming = exchange
                return
        body = self._body
        exchange.body = bytes(body[0]) if len(body) == 1 else b"".join(body)
        self._body = []
        self._phase = ANSWER
        if self._current is None and not self._waiting:
            self._start(exchange)
        elif self._has_room(len(exchange.body)):
            self._waiting.append(exchange)
        else:
            message = (
                f"more than {PIPELINE_DEPTH} requests, or {self.service.limits.body_bytes} bytes of them, were sent"
                " without reading an answer; read answers in between"
            )
            self._refuse(RequestError(ErrorCode.INVALID_REQUEST, message))

    # --- exchanges

    def finish(self, last: bytes, *, closes: bool) -> None:
        """Send the last bytes of the current answer; go on with the next request, or close."""
        if last:
            self.write(last)
        self._current = None
        if closes:
            self._close()
        elif self._waiting:
            self._loop.call_soon(self._start_next)
        elif self._phase is ANSWER:
            self._phase = IDLE
            self._deadline_mono_s = NOT_SET
        elif self._phase is not CLOSED:
            self._enter(self._phase)  # a request that is still arriving gets its full time from here

    def abort(self) -> None:
        self._phase = CLOSED
        self._transport.abort()

    def close_if_idle(self) -> bool:
        """Close a connection that has no request under way; used when draining."""
        if self._current is None and not self._waiting and self._phase is IDLE:
            self._close()
            return True
        return False

    def sweep(self, now_mono_s: float) -> None:
        """Enforce the time-outs; called every SWEEP_INTERVAL_S."""
        if self._is_slow_since is not None:
            self._check_slow_reader(now_mono_s)
        if self._phase is ANSWER or now_mono_s < self._deadline_mono_s:
            return
        if self._phase is IDLE and self._deadline_mono_s == NOT_SET:
            self._deadline_mono_s = now_mono_s + self.service.limits.idle_timeout_s
        elif self._phase is IDLE:
            self._close()
        elif self._phase is LINGER:
            if self._current is None and not self._waiting:  # those before the refused one are still answered
                self.abort()
        elif self._current is None and self._phase in (HEAD, BODY):
            part = "headers" if self._phase is HEAD else "body"
            limits = self.service.limits
            bound_s = limits.header_timeout_s if self._phase is HEAD else limits.body_timeout_s
            message = f"the request's {part} did not arrive within {bound_s:g} s"
            self._refuse(RequestError(ErrorCode.REQUEST_TIMEOUT, message))

    def hold_reading(self, is_held: bool) -> None:
        if self._phase is CLOSED or self._transport.is_closing():
            return
        if is_held:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- inside

    def _keep_small(self, piece: bytes) -> None:
        """Kept one by one, chunks of two bytes would take seventy times their size, and seconds to be joined."""
        last = self._body[-1]
        if isinstance(last, bytearray):
            last += piece
        else:
            self._body.append(bytearray(piece))

    def _has_room(self, body_bytes: int) -> bool:
        """Whether one more request may wait behind the current one.

        What is over is refused rather than left unread: a connection that is not read does not tell that its caller has
        left, and the engine would go on working for nobody.
        """
        held = sum([len(exchange.body) for exchange in self._waiting])
        return len(self._waiting) < PIPELINE_DEPTH and held + body_bytes <= self.service.limits.body_bytes

    def _feed(self, exchange: Exchange, inlet: Inlet, body: bytes) -> None:
        """Hand on a piece of a body that is not held; each has its own time to arrive."""
        if self._body_bytes > exchange.inlet_bytes:
            self._refuse(self._body_too_large(self._body_bytes, exchange.inlet_bytes))
            return
        self._deadline_mono_s = monotonic() + self.service.limits.body_timeout_s
        inlet.feed(body)

    def _start_next(self) -> None:
        if self._current is None and self._waiting and self._phase is not CLOSED:
            self._start(self._waiting.popleft())

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        exchange.received_mono_s = monotonic()
        self.service.request_arrived(exchange)

    def _read_partly(self, phase: Phase, before: Phase, read_bytes: int) -> None:
        """A read has ended within a request: only then is there a deadline, and a head that may grow too large."""
        if phase is not before:
            self._enter(phase)
        if phase is HEAD:
            # Only reads that began inside the head count: what came before belonged to an earlier request.
            self._head_bytes += read_bytes if before is not BODY and self._current is None else 0
            if self._head_bytes > self.service.limits.header_bytes:
                self._refuse(self._headers_too_large())

    def _enter(self, phase: Phase) -> None:
        limits = self.service.limits
        if phase is HEAD:
            wait_s = limits.header_timeout_s
        elif phase is BODY:
            wait_s = limits.body_timeout_s
        else:
            wait_s = LINGER_S
        self._phase = phase
        self._deadline_mono_s = monotonic() + wait_s

    @staticmethod
    def _has_long_body(headers: dict[bytes, bytes]) -> bool:
        """Whether a refused request is cut off rather than read to its end (which keeps the connection)."""
        if b"transfer-encoding" in headers or b"expect" in headers:
            return True
        length = headers.get(b"content-length", b"0")
        return not length.isdigit() or int(length) > SHORT_BODY_BYTES

    def _refusal_of_head(self, exchange: Exchange) -> RequestError | None:
        """Refuse what parsers disagree on, and what is over a limit, before any body is read."""
        headers, limits = exchange.headers, self.service.limits
        for name in self.repeated:
            if name in SINGLE_HEADERS:
                return RequestError(ErrorCode.INVALID_REQUEST, f"header {name.decode('latin-1')} is given twice")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or b"content-length" in headers):
            message = "transfer-encoding must be exactly `chunked`, and never beside content-length"
            return RequestError(ErrorCode.INVALID_REQUEST, message)
        if exchange.is_chunkable and b"host" not in headers:
            return RequestError(ErrorCode.INVALID_REQUEST, "an HTTP/1.1 request needs a host header")
        if not exchange.is_chunkable and self._parser.get_http_version() != "1.0":
            return RequestError(ErrorCode.INVALID_REQUEST, "only HTTP/1.0 and HTTP/1.1 are served here")
        expect = headers.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            return RequestError(ErrorCode.INVALID_REQUEST, "the only expectation served is `100-continue`")
        if self._fed_bytes > limits.header_bytes:  # otherwise it cannot be too large
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers.items())
            if size > limits.header_bytes:
                return self._headers_too_large()
        length = headers.get(b"content-length")
        if length is None:
            return None
        if not length.isdigit():
            return RequestError(ErrorCode.INVALID_REQUEST, "content-length must be a plain number")
        if int(length) <= limits.body_bytes:
            return None
        longest = self.service.longest_body(exchange.path)
        return self._body_too_large(int(length), longest) if int(length) > longest else None

    def _refuse(self, error: RequestError) -> None:
        """End the connection with an error for a request that is not complete and never will be."""
        if self._phase is LINGER or self._phase is CLOSED:  # refused already: the rest is no news
            return
        exchange = self._incoming or Exchange(self, b"GET", self._url.partition(b"?")[0], self._headers)
        exchange.error = error
        exchange.closes = True
        if exchange.inlet is not None:
            exchange.inlet.cut()
        self._incoming = None
        self._body = []
        self._enter(LINGER)
        self._waiting.append(exchange)
        if self._current is None:
            self._start(self._waiting.popleft())

    def _headers_too_large(self) -> RequestError:
        limit = self.service.limits.header_bytes
        return RequestError(ErrorCode.HEADERS_TOO_LARGE, f"request line and headers are over {limit} bytes")

    @staticmethod
    def _body_too_large(size: int, limit: int) -> RequestError:
        return RequestError(ErrorCode.BODY_TOO_LARGE, f"the body has {size} bytes or more; the limit is {limit}")

    def _ignore_upgrade(self, rest: bytes) -> None:
        """A client that offers h2c or a WebSocket is answered in HTTP/1.1, as RFC 9110 section 7.8 allows.

        llhttp ends the message at its head then, whatever content-length says: the body is taken here, since reading
        it as the next request would be request smuggling.
        """
        self._parser = httptools.HttpRequestParser(self)
        if rest and self._phase not in (LINGER, CLOSED):
            self.data_received(rest)

    def _take_upgrade_body(self, data: bytes) -> bytes:
        """Take what belongs to the body of a request that offered an upgrade; return what follows it."""
        body, rest = data[: self._upgrade_body_bytes], data[self._upgrade_body_bytes :]
        self._upgrade_body_bytes -= len(body)
        self.on_body(body)
        if not self._upgrade_body_bytes:
            self.on_message_complete()
        return rest

    def _check_slow_reader(self, now_mono_s: float) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting < self._slow_bytes:
            self._slow_bytes, self._is_slow_since = waiting, now_mono_s
        elif now_mono_s - (self._is_slow_since or now_mono_s) > self.service.limits.slow_reader_timeout_s:
            self.abort()

    def _close(self) -> None:
        """Close once everything written is out; a refused upload is read to its end for a moment first."""
        if self._phase is LINGER and self._transport.can_write_eof():
            self._transport.write_eof()
            self._deadline_mono_s = monotonic() + LINGER_S
            return
        self._phase = CLOSED
        self._transport.close()

    def __repr__(self) -> str:
        return f"CallerConnection({self._phase.name}, waiting={len(self._waiting)})"
