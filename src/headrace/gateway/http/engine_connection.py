"""One connection to an engine: sends a request, hands the answer to its reader as it arrives.

Counterpart: `caller_connection.py`. Pooled by `connection_pool.py`.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, cast

import httptools

from headrace.gateway.http.direct_writer import write_nothing, writer_of

BARE_BYTES = 65536
"""Longest stretch of an answer without any of its body: its head and interim answers, its trailer, the frames of its
chunks. Together with one read, which the system bounds. Chosen as the callers' default, `gateway.limits.header_bytes`.
"""


class LossReason(StrEnum):
    """Why an answer will not come, or not come whole."""

    CONNECT = "connect"
    """No connection could be made."""
    STALE = "stale"
    """A pooled connection turned out closed before any answer byte: the request may be sent again."""
    BROKEN = "broken"
    """The connection ended, or became nonsense, before the answer was complete."""


class AnswerReader(Protocol):
    """Whoever waits for an engine's answer.

    Concurrency: event loop; after `answer_complete` or `answer_lost` nothing more is called.
    """

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None: ...

    def answer_bytes(self, data: bytes) -> None: ...

    def answer_complete(self) -> None: ...

    def answer_lost(self, reason: LossReason, detail: str) -> None: ...

    def crashed(self, bug: Exception) -> None:
        """One of the others raised what it should not: a bug of ours, not the engine's fault."""
        ...


class EngineConnection(asyncio.Protocol):
    """Transport side of one engine connection; one answer at a time."""

    def __init__(
        self, on_free: Callable[["EngineConnection"], None], on_lost: Callable[["EngineConnection"], None]
    ) -> None:
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._write: Callable[[bytes], None] = write_nothing
        self._chunks: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        # The parser's callbacks for each header and each piece of the body: collected without any Python in between.
        self.on_header = self._headers.setdefault
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)
        self._reader: AnswerReader | None = None
        self._is_reused = False
        self._is_paused = False
        self._is_kept_alive = False
        self._is_begun = False
        self._is_complete = False
        self._ends_with_connection = False
        self._bare_bytes = 0
        """What has come since the request, or the last piece of a body."""
        self.idle_since_mono_s = 0.0
        self.is_usable = True

    def request(self, head: bytes, body: bytes, reader: AnswerReader) -> None:
        """Send one request; `reader` hears of its answer."""
        self._reader = reader
        self._headers.clear()  # of the trailer, if the last answer had one
        self._bare_bytes = 0
        self._is_begun = self._is_complete = self._ends_with_connection = False
        if len(body) < 65536:
            self._write(head + body)
        else:
            self._transport.writelines((head, body))

    def pause(self) -> None:
        """Stop reading: the caller is slower than the engine."""
        if self._reader is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    def cancel(self) -> None:
        """Close at once: this is how an engine learns that nobody waits any more."""
        self._reader = None
        self.is_usable = False
        self._transport.abort()

    def close(self) -> None:
        self.is_usable = False
        self._transport.close()

    # --- transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write = writer_of(self._transport)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:  # an answer that nobody asked for
            self.close()
            return
        try:
            self._parser.feed_data(data)
            chunks = self._chunks
            if chunks:
                block = chunks[0] if len(chunks) == 1 else b"".join(chunks)
                chunks.clear()
                self._bare_bytes = 0
                reader.answer_bytes(block)
            elif not self._is_complete:
                self._count_bare(len(data))
            if self._is_complete and self._reader is reader:
                self._finish(reader)
        except httptools.HttpParserCallbackError as error:
            self._crash(reader, error.__context__ if isinstance(error.__context__, Exception) else error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._lose(f"malformed HTTP answer: {error}")
        except Exception as bug:  # noqa: BLE001 (boundary of one answer)
            self._crash(reader, bug)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_usable = False
        # The parser holds our callbacks: without this cut only the collector would free a closed connection.
        self._parser = cast(httptools.HttpResponseParser, None)
        self._on_lost(self)
        reader, self._reader = self._reader, None
        if reader is None:
            return
        try:
            if self._is_begun and self._ends_with_connection and exc is None:
                reader.answer_complete()
            elif not self._is_begun and self._is_reused:
                reader.answer_lost(LossReason.STALE, "the engine had closed the connection")
            else:
                reader.answer_lost(LossReason.BROKEN, f"connection lost: {exc or 'closed by the engine'}")
        except Exception as bug:  # noqa: BLE001 (boundary of one answer)
            reader.crashed(bug)

    # --- parser events

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers = {name.lower(): value for name, value in self._headers.items()}
        self._headers.clear()
        if status < 200 or self._reader is None:  # an interim answer: the real one follows
            return
        self._is_begun = True
        # Asked here: once the message is complete llhttp has forgotten its length and would say no.
        self._is_kept_alive = self._parser.should_keep_alive()
        self._ends_with_connection = b"content-length" not in headers and b"transfer-encoding" not in headers
        self._reader.answer_begun(status, headers)

    def on_message_complete(self) -> None:
        self._is_complete = self._is_begun

    # --- inside

    def _finish(self, reader: AnswerReader) -> None:
        self._reader = None
        self._is_reused = True
        if self._is_kept_alive and not self._transport.is_closing():
            if self._is_paused:
                self.resume()
            self._on_free(self)
        else:
            self.close()
        reader.answer_complete()

    def _count_bare(self, read_bytes: int) -> None:
        """Bound what the parser holds of an answer: the body has its own limit, with its reader."""
        self._bare_bytes += read_bytes
        if self._bare_bytes > BARE_BYTES:
            part = "trailer" if self._is_begun else "head"
            self._lose(f"the {part} of the answer is over {BARE_BYTES} bytes")

    def _lose(self, detail: str) -> None:
        reader, self._reader = self._reader, None
        self.is_usable = False
        self._transport.abort()
        if reader is not None:
            reader.answer_lost(LossReason.BROKEN, detail)

    def _crash(self, reader: AnswerReader, bug: Exception) -> None:
        if self._reader is reader:  # otherwise it is free again, and in order
            self.cancel()
        reader.crashed(bug)

    def __repr__(self) -> str:
        return f"EngineConnection({'busy' if self._reader else 'idle'}, usable={self.is_usable})"
