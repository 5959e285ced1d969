"""The simulated engine's side of HTTP/1.1: one object per connection, one request at a time, bytes written at once.

Tokens are written to the socket directly while nothing is queued for it: a thousand of them are due at one moment.
"""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol, cast
from urllib.parse import parse_qsl, urlsplit

import httptools
import msgspec

QUEUED_BYTES = 4 * 1024 * 1024
"""A reader that leaves so much unread is cut off, so that it cannot fill the memory."""

BODY_BYTES = 64 * 1024 * 1024
"""Largest body read."""

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True, kw_only=True)
class HttpRequest:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, value: object, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> "Reply":
        return cls(status=status, body=msgspec.json.encode(value), headers=headers)

    @classmethod
    def text(cls, text: str, status: int = 200, content_type: str = "text/plain; charset=utf-8") -> "Reply":
        return cls(status=status, body=text.encode(), content_type=content_type)


class Listener(Protocol):
    """What serves the requests of all connections."""

    def on_request(self, connection: "Connection", request: HttpRequest) -> None:
        """Answer now or later, by `connection`."""
        ...

    def on_open(self, connection: "Connection") -> None: ...

    def on_gone(self, connection: "Connection") -> None:
        """The connection is closed, by whichever side."""
        ...


class BadHttpError(Exception):
    """The client does not speak HTTP."""


@dataclass(slots=True)
class _Incoming:
    """What the parser has read of the next request."""

    url: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: list[bytes] = field(default_factory=list[bytes])
    body_bytes: int = 0


class Connection(asyncio.Protocol):
    """One client connection. `owner` is what answers on it now; it is told when the client goes."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._parser = httptools.HttpRequestParser(self)
        self._incoming = _Incoming()
        self._queue: deque[HttpRequest] = deque()
        self._is_answering = False
        self._keeps_alive = True
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self.owner: object | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        self._fd = sock.fileno()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.on_open(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.close()
        except (httptools.HttpParserError, BadHttpError):
            self.reply(Reply.text("Invalid HTTP request received.", 400))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fd = -1
        self._listener.on_gone(self)

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._incoming = _Incoming()

    def on_url(self, url: bytes) -> None:
        self._incoming.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._incoming.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._incoming.body_bytes += len(body)
        if self._incoming.body_bytes > BODY_BYTES:
            raise BadHttpError
        self._incoming.body.append(body)

    def on_message_complete(self) -> None:
        incoming = self._incoming
        self._keeps_alive = self._parser.should_keep_alive()
        parts = urlsplit(incoming.url.decode("latin-1"))
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=parts.path,
            query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers=incoming.headers,
            body=b"".join(incoming.body),
        )
        if self._is_answering:
            self._queue.append(request)
        else:
            self._is_answering = True
            self._listener.on_request(self, request)

    # answering

    @property
    def is_open(self) -> bool:
        return self._fd >= 0 and self._transport is not None and not self._transport.is_closing()

    def reply(self, reply: Reply) -> None:
        """Send a whole answer and take the next request."""
        self.write(_head(reply.status, reply.content_type, reply.headers, len(reply.body)) + reply.body)
        self.end()

    def begin_stream(self, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
        """The head of a chunked answer; the caller writes it before or with the first chunk."""
        return _head(200, EVENTS, headers, None)

    def write(self, data: bytes) -> None:
        """Send bytes now: straight to the socket where nothing waits before them."""
        transport = self._transport
        if self._fd < 0 or transport is None or transport.is_closing():
            return
        queued = transport.get_write_buffer_size()
        if queued == 0:
            try:
                sent = os.write(self._fd, data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                transport.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        elif queued > QUEUED_BYTES:
            transport.abort()
            return
        transport.write(data)

    def end(self) -> None:
        """The answer is complete: take the next request, or close where the client asked for it."""
        self.owner = None
        self._is_answering = False
        if not self._keeps_alive:
            self.close()
        elif self._queue:
            self._is_answering = True
            self._listener.on_request(self, self._queue.popleft())

    def close(self) -> None:
        """Close in order, what is queued sent first."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close with RST, as the kernel does for a process that died with data unread."""
        if self._fd >= 0 and self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()


def framed(data: bytes) -> bytes:
    """`data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(status: int, content_type: str, headers: tuple[tuple[str, str], ...], length: int | None) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", "server: simulated"]
    if length != 0 or content_type != JSON:
        lines.append(f"content-type: {content_type}")
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
