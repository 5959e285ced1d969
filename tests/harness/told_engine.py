"""A server that is ready, and answers what the test says where it is asked what it is."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

PATHS = (b" /version ", b" /server_info ", b" /props ")


class ToldEngine:
    """`reply`: whole bytes of an answer, empty: none ever comes; `page`: its metrics; `asked`: how often it was."""

    def __init__(self, reply: bytes) -> None:
        self.reply, self.asked, self.page = reply, 0, b""
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        await self._end(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if any(path in head for path in PATHS):
            self.asked += 1
            writer.write(self.reply)
            await (writer.drain() if self.reply else reader.read())
        else:
            page = self.page if b"/metrics " in head else b""
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page))

    async def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        """Its URL."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*map(self._end, tuple(self._writers)))


def says(version: str) -> bytes:
    """The answer of an engine of that version."""
    body = b'{"version":"%b","page_size":64}' % version.encode()
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
