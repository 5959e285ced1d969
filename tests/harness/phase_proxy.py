"""A wire to an engine that fails in a given phase of a hand-over: it refuses, is cut, or is silent."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import httptools

REFUSAL_BODY = b'{"error":{"message":"boom","code":500}}'
REFUSAL = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    REFUSAL_BODY
)


@dataclass(slots=True)
class Asked:
    """One request, read whole."""

    path: str = ""
    body: bytes = b""
    raw: bytes = b""
    is_complete: bool = False

    def on_url(self, url: bytes) -> None:
        self.path = url.decode()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True

    @property
    def phase(self) -> str:
        """prefill, save, restore, decode, or another word for what is none of a hand-over's."""
        if "action=" in self.path:
            return self.path.partition("action=")[2]
        if not self.path.startswith("/v1/"):
            return "question"
        return "prefill" if b'"max_tokens":1,' in self.body or b'"max_tokens":1}' in self.body else "decode"


@dataclass(kw_only=True)
class PhaseProxy:
    """Passes everything on to a port, one request at a time per connection, but for what `fault` says."""

    target_port: int
    fault: tuple[str, str] | None = None
    """Phase and kind (refuse, cut, hang) of the next failure; None: nothing fails. Back to None once it has."""
    before: Callable[[str], None] = lambda _: None
    """What is done just before a phase's request is passed on."""
    answered: Callable[[str], None] = lambda _: None
    """What is done when the engine has answered a phase, just before that is passed on."""
    seen: list[str] = field(default_factory=list[str])
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "PhaseProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while (asked := await _read(reader)) is not None and await self._answer(asked, reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        phase = asked.phase
        if phase != "question":
            self.seen.append(phase)
        self.before(phase)
        if self.fault is not None and self.fault[0] == phase:
            kind, self.fault = self.fault[1], None
            if kind == "refuse":
                writer.write(REFUSAL + REFUSAL_BODY)
                await writer.drain()
            elif kind == "hang":
                await reader.read()  # until the gateway gives it up
            return False
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            return False
        to_writer.write(asked.raw)
        gone = asyncio.ensure_future(reader.read(1))  # the caller has nothing to say meanwhile but that it leaves
        is_answered = False
        try:
            while True:
                coming = asyncio.ensure_future(to_reader.read(65536))
                await asyncio.wait((coming, gone), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done() or not (block := coming.result()):
                    coming.cancel()
                    return False
                if not is_answered:
                    self.answered(phase)
                    is_answered = True
                writer.write(block)
                await writer.drain()
        finally:
            gone.cancel()
            to_writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    asked = Asked()
    parser = httptools.HttpRequestParser(asked)
    while not asked.is_complete:
        data = await reader.read(65536)
        if not data:
            return None
        asked.raw += data
        parser.feed_data(data)
    asked.raw = asked.raw.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)  # the answer ends with its connection
    return asked
