"""Requests for files and batches go through to the batch process, a piece at a time: nothing of a file is held here.

Not on the hot path: one task and one connection over a Unix socket per request. Counterpart: `batch/api.py`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import httpx
import msgspec

from headrace.domain.batch import SUBMITTER_HEADER, Submitter
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.undecodable import UNDECODABLE
from headrace.gateway.http.exchange import Exchange
from headrace.gateway.tasks import spawn

HELD_BYTES = 262144
"""Of an upload that the batch process has not taken yet; beyond it the caller's connection is not read. Chosen."""
FRAMING_BYTES = 65536
"""What a form may have around its file. Chosen."""
ANSWER_BYTES = 16777216
"""Longest answer that is not a file: a full page of a list is a tenth of it."""
PATIENCE_S = 60.0
"""The batch process writes an upload to disk in pieces; one that is silent for so long is broken."""
PASSED_ON = (b"content-type", b"content-length")
STREAMED_TYPE = "application/octet-stream"


class Ending(Protocol):
    """Who settles the request's account."""

    def passed_on(self, status: int, code: ErrorCode | None) -> None:
        """The batch process has answered, with an error where there is a `code`."""
        ...

    def failed(self, error: RequestError) -> None: ...


class BatchLink:
    """The way to the batch process. Concurrency: event loop only."""

    def __init__(self, socket: Path, upload_bytes: int) -> None:
        self.socket = socket
        self.upload_bytes = upload_bytes

    def begin(self, exchange: Exchange, submitter: Submitter, *, is_upload: bool) -> "Relay":
        """Prepare for the answer; an upload's body goes through from now on."""
        relay = Relay(self.socket, exchange, submitter)
        if is_upload:
            exchange.inlet = relay
            exchange.inlet_bytes = self.upload_bytes + FRAMING_BYTES
            relay.begin()
        return relay


class Relay:
    """One request on its way through. Implements `Inlet` and `AnswerSource` of the wire."""

    def __init__(self, socket: Path, exchange: Exchange, submitter: Submitter) -> None:
        self._socket = socket
        self._exchange = exchange
        self._submitter = submitter
        self._pieces: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_holding = False
        self._is_complete = False
        self._changed = asyncio.Event()
        self._may_answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._lines = b""
        self._ending: Ending | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._task = spawn(self._run(), "relay")

    # --- the caller's side

    def feed(self, body: bytes) -> None:
        """Take a piece of the body."""
        if self._task is None or self._task.done():
            return  # the batch process is gone: the rest is read and dropped, then the caller is told
        self._pieces.append(body)
        self._held_bytes += len(body)
        self._changed.set()
        if self._held_bytes > HELD_BYTES and self._exchange.connection is not None:
            self._is_holding = True
            self._exchange.connection.hold_reading(True)

    def cut(self) -> None:
        """The request will never be complete."""
        if self._task is not None:
            self._task.cancel()

    def deliver(self, lines: bytes, ending: Ending) -> None:
        """The request is here whole: answer it."""
        self._lines, self._ending = lines, ending
        self._exchange.source = self
        if self._exchange.inlet is None:
            self._pieces.append(self._exchange.body)
            self.begin()
        self._is_complete = True
        self._changed.set()
        self._may_answer.set_result(None)

    def caller_left(self) -> None:
        self.cut()
        if self._ending is not None:
            self._ending.failed(RequestError(ErrorCode.CALLER_DISCONNECTED, "the caller closed its connection"))

    def caller_is_slow(self) -> None:
        self._may_send.clear()

    def caller_caught_up(self) -> None:
        self._may_send.set()

    # --- the batch process's side

    async def _run(self) -> None:
        try:
            await self._pass_through()
        except (httpx.HTTPError, OSError) as error:
            await self._refuse(error)
        finally:
            self._release()

    async def _pass_through(self) -> None:
        exchange = self._exchange
        headers = [(name, exchange.headers[name]) for name in PASSED_ON if name in exchange.headers]
        has_body = exchange.method == b"POST"
        headers.append((SUBMITTER_HEADER.encode(), msgspec.json.encode(self._submitter)))
        target = exchange.path + (b"?" + exchange.query if exchange.query else b"")
        url = httpx.URL("http://batch").copy_with(raw_path=target)
        timeout = httpx.Timeout(PATIENCE_S, write=None)
        async with (
            httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(self._socket)), timeout=timeout) as client,
            client.stream(
                exchange.method.decode("ascii"), url, headers=headers, content=self._iter_pieces() if has_body else None
            ) as response,
        ):
            await self._may_answer
            if response.status_code == 200 and response.headers.get("content-type") == STREAMED_TYPE:
                await self._stream(response)
            else:
                await self._answer(response)

    async def _iter_pieces(self) -> AsyncIterator[bytes]:
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._held_bytes -= len(piece)
                if self._held_bytes <= 0:
                    self._release()
                yield piece
            if self._is_complete:
                return
            self._changed.clear()
            await self._changed.wait()

    async def _answer(self, response: httpx.Response) -> None:
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > ANSWER_BYTES:
                raise httpx.ReadError(f"an answer of more than {ANSWER_BYTES} bytes")
        lines = self._lines + b"content-type: application/json\r\n"
        for name in ("retry-after", "x-should-retry", "allow"):
            if name in response.headers:
                lines += f"{name}: {response.headers[name]}\r\n".encode("ascii")
        self._exchange.respond(response.status_code, lines, bytes(body))
        self._end(response.status_code, _code_of(response.status_code, bytes(body)))

    async def _stream(self, response: httpx.Response) -> None:
        self._exchange.begin_stream(self._lines + f"content-type: {STREAMED_TYPE}\r\n".encode("ascii"))
        async for piece in response.aiter_raw(65536):
            await self._may_send.wait()
            self._exchange.send(piece)
        self._exchange.end_stream()
        self._end(200, None)

    async def _refuse(self, error: Exception) -> None:
        await self._may_answer
        connection = self._exchange.connection
        is_streaming = self._exchange.is_streaming
        self._exchange.source = None
        if self._ending is not None:
            message = f"files and batches cannot be reached now ({error or type(error).__name__}); retry in a moment"
            ending, self._ending = self._ending, None
            ending.failed(RequestError(ErrorCode.STORE_UNAVAILABLE, message))
        if is_streaming and connection is not None:
            connection.abort()  # the caller must not take what it has for the whole file

    def _end(self, status: int, code: ErrorCode | None) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.passed_on(status, code)

    def _release(self) -> None:
        if self._is_holding and self._exchange.connection is not None:
            self._is_holding = False
            self._exchange.connection.hold_reading(False)


class _Error(msgspec.Struct):
    code: str | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def _code_of(status: int, body: bytes) -> ErrorCode | None:
    """Why the batch process refused; what it answers otherwise is no fault."""
    if status < 400:
        return None
    try:
        return ErrorCode(msgspec.json.decode(body, type=_Refusal).error.code or "")
    except (*UNDECODABLE, ValueError):
        return ErrorCode.INTERNAL_BUG  # no answer of its own
