"""Bytes of HTTP/1.1 messages: status lines, response heads, chunk framing."""

from email.utils import formatdate
from http import HTTPStatus

STATUS_LINES: dict[int, bytes] = {
    **{status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus},
    499: b"HTTP/1.1 499 Client Closed Request\r\n",
}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n"
"""One chunk of a chunked body: its length, its bytes. A format, since it is filled in for every block of a stream."""
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"connection: close\r\n"
JSON_TYPE = b"content-type: application/json\r\n"
STREAM_HEAD = b"content-type: text/event-stream; charset=utf-8\r\ncache-control: no-store\r\nx-accel-buffering: no\r\n"
"""Keeps buffering proxies (nginx: X-Accel-Buffering) from holding events back. Source: PAINS 1."""


class DateLine:
    """The `date:` header line, made anew by the sweeper rather than per response."""

    line: bytes
    ok: bytes
    """The status line of a success, and the date: how nearly every answer begins."""

    def __init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        self.line = b"date: " + formatdate(usegmt=True).encode() + b"\r\n"
        self.ok = STATUS_LINES[200] + self.line


def status_line(status: int) -> bytes:
    """Return the status line, also for a status that no RFC names."""
    return STATUS_LINES.get(status) or f"HTTP/1.1 {status} Unknown\r\n".encode()
