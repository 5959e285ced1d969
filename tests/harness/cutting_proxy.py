"""A wire to an engine that is cut in the middle of an answer, wherever a test wants it."""

import asyncio
from types import TracebackType


class CuttingProxy:
    """Passes everything on to a port; the next answer to a POST is cut after so many events."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut_after_events: int | None = None
        """None: nothing is cut. Back to None once it has happened."""
        self.cuts = 0
        self.passed = b""
        """Of the answer that was cut last, what came through."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> "CuttingProxy":
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
            engine_reader, engine_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        asked = asyncio.ensure_future(self._pass_on(reader, engine_writer))
        try:
            await self._answer(engine_reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            asked.cancel()
            writer.transport.abort()
            engine_writer.transport.abort()
            self._tasks.discard(task)

    @staticmethod
    async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        events, passed = 0, b""
        while data := await reader.read(65536):
            if data.startswith(b"HTTP/1.1 "):  # the next answer on the same connection
                events, passed = 0, b""
            is_stream = b"data: " in data
            events += data.count(b"\n\n")
            limit = self.cut_after_events
            if limit is not None and is_stream and events > limit:
                self.cut_after_events = None
                self.cuts += 1
                kept = data.split(b"\n\n")[: max(0, limit - (events - data.count(b"\n\n")))]
                last = b"\n\n".join([*kept, b""]) if kept else b""
                self.passed = passed + last
                writer.write(last)
                await writer.drain()
                return
            passed += data
            writer.write(data)
            await writer.drain()
