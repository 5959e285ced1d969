"""An engine on a real socket whose behaviour is scripted per request: refuse, stall, cut, stream at a pace, count.

It speaks just enough of OpenAI's API for the gateway; what a request does is chosen by the text of its last message
(`script:NAME`), so that one running engine serves a whole test module.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Seen:
    """One request as the engine saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    was_cut: bool = False
    """The gateway closed the connection before the answer was out."""
    cut_mono_s: float | None = None
    """When that was seen."""

    @property
    def json(self) -> dict[str, object]:
        return json.loads(self.body)


Script = Callable[["ScriptedEngine", Seen, asyncio.StreamWriter], Awaitable[None]]


def chunk_event(content: str | None = None, *, model: str = "m", finish: str | None = None, **extra: object) -> bytes:
    """One `chat.completion.chunk` event."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}
    return b"data: " + json.dumps({**chunk, **extra}, separators=(",", ":")).encode() + b"\n\n"


def usage_event(input_tokens: int = 7, output_tokens: int = 3, cached: int = 2) -> bytes:
    """The event that `include_usage` adds."""
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    return b"data: " + json.dumps({**chunk, "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def completion(text: str = "hello there friend") -> bytes:
    answer = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
                  "prompt_tokens_details": {"cached_tokens": 2}},
    }  # fmt: skip
    return json.dumps(answer).encode()


@dataclass
class ScriptedEngine:
    """Start with `async with ScriptedEngine(scripts) as engine`; `engine.url` is where it listens."""

    scripts: dict[str, Script] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    open_requests: int = 0
    connections: int = 0
    """Connections accepted so far."""
    port: int = 0
    host: str = "127.0.0.1"
    """Address to listen on."""
    probe: Callable[[], Awaitable[bytes]] | None = None
    """Answer to probes; None is 200."""
    otherwise: Script | None = None
    """What it does with a request that names no script; None: it answers."""
    pages: dict[str, bytes] = field(default_factory=dict)
    """JSON by path of what GET finds; where there is any, other paths are 404. Without any it lists no model."""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each GET."""
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> "ScriptedEngine":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; on the same port again after a `stop`."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop as a killed process does: every connection is reset."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.sleep(0)

    def stop_listening(self) -> None:
        """Take no new connections; those that are open stay."""
        assert self._server is not None
        self._server.close()

    def cut(self) -> None:
        """Reset every connection, and go on listening."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if method == "GET":
            self.asked.append((path, headers))
            writer.write(await self._found(path))
            await writer.drain()
            return True
        request = Seen(method, path, headers, body)
        self.seen.append(request)
        self.open_requests += 1
        try:
            await self._answer(request, reader, writer)
        finally:
            self.open_requests -= 1
        return not writer.is_closing()

    async def _found(self, path: str) -> bytes:
        if self.probe:
            return await self.probe()
        if not self.pages:
            return whole(200, b'{"object":"list","data":[]}')
        page = self.pages.get(path)
        return whole(404, b"{}") if page is None else whole(200, page)

    async def _answer(self, request: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run the script; end it at once when the gateway closes the connection, as engines do."""
        script = asyncio.ensure_future(self._script_of(request)(self, request, writer))
        gone = asyncio.ensure_future(self._wait_gone(reader))
        done, _ = await asyncio.wait({script, gone}, return_when=asyncio.FIRST_COMPLETED)
        if script not in done or isinstance(script.exception(), ConnectionError):
            request.was_cut, request.cut_mono_s = True, time.monotonic()
            script.cancel()
            writer.close()
        gone.cancel()
        await asyncio.gather(script, gone, return_exceptions=True)

    @staticmethod
    async def _wait_gone(reader: asyncio.StreamReader) -> None:
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.002)

    def _script_of(self, request: Seen) -> Script:
        text = request.body.decode("utf-8", "replace")
        for name, script in self.scripts.items():
            if f"script:{name}" in text:
                return script
        return self.otherwise or answer_normally


async def answer_normally(engine: ScriptedEngine, request: Seen, writer: asyncio.StreamWriter) -> None:
    """A short answer, streamed where asked for, with usage where asked for."""
    body = request.json
    if not body.get("stream"):
        writer.write(whole(200, completion()))
        await writer.drain()
        return
    writer.write(STREAM_HEAD)
    options = body.get("stream_options") or {}
    events = [chunk_event(word) for word in ("hello", " there", " friend")] + [chunk_event(finish="stop")]
    if isinstance(options, dict) and options.get("include_usage"):
        events.append(usage_event())
    for event in (*events, DONE):
        writer.write(framed(event))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
