"""A client that sends exactly the bytes it is told to, and reads one HTTP answer at a time."""

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RawAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str | None:
        """The error code of an error answer."""
        return self.json["error"]["code"] if self.body.startswith(b'{"error"') else None


class RawClient:
    """One connection. `async with RawClient(port) as client`."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._tls = tls
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> "RawClient":
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**26, ssl=self._tls, server_hostname="localhost" if self._tls else None
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, *, is_head: bool = False) -> RawAnswer:
        """Read one whole answer, chunked or with a length."""
        async with asyncio.timeout(30):
            status, headers = await self.head()
            if is_head or status == 204:
                return RawAnswer(status, headers, b"")
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([chunk async for chunk in self.chunks()])
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
            return RawAnswer(status, headers, body)

    async def head(self) -> tuple[int, dict[str, str]]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return int(first.split(" ")[1]), headers

    async def chunks(self):
        """Yield the chunks of a chunked body; returns only after the last chunk, raises where it never comes."""
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
            if size == 0:
                return
            yield data[:-2]

    async def is_closed(self) -> bool:
        """Whether the gateway closes the connection, nothing more having come."""
        async with asyncio.timeout(30):
            try:
                return await self.reader.read() == b""
            except ConnectionError:
                return True


def post(body: bytes | dict[str, Any], key: str | None, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    """A POST request as bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"host": "test", "content-type": "application/json", "content-length": str(len(raw))}
    if key is not None:
        lines["authorization"] = f"Bearer {key}"
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return head.encode() + b"\r\n" + raw


def get(path: str, key: str | None = None, method: str = "GET", **headers: str) -> bytes:
    """A request without a body, as bytes."""
    lines = {"host": "test", **({"authorization": f"Bearer {key}"} if key else {})}
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    return (
        f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    ).encode()


def chat(text: str = "hi", *, model: str = "m", **fields: Any) -> dict[str, Any]:
    """A chat request's body."""
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


async def ask(port: int, request: bytes) -> RawAnswer:
    """Send one request on a connection of its own."""
    async with RawClient(port) as client:
        await client.send(request)
        return await client.answer()
