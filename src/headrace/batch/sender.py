"""Sends one line to a gateway worker, in its submitter's name. Counterpart: `gateway/batches/line_socket.py`."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

import httpx
import msgspec

from headrace.batch.core.lines import Line
from headrace.domain.batch import LINE_SOCKETS, SUBMITTER_HEADER, Submitter
from headrace.domain.request import RequestClass
from headrace.domain.undecodable import UNDECODABLE

CONNECT_S = 5.0


class GatewayAwayError(Exception):
    """No worker takes lines now: none runs, or all of them are being replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A gateway's answer to one line."""

    status: int
    request_id: str
    body: bytes
    code: str | None
    """The error's, where it is one."""
    retry_after_s: float | None


class _Error(msgspec.Struct):
    code: str | int | None = None


class _ErrorBody(msgspec.Struct):
    error: _Error


class LineSender:
    """Concurrency: event loop only."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._turn = count()

    async def send(self, line: Line, endpoint: str, submitter: Submitter, request_id: str) -> Reply:
        """Return the answer. Raises: GatewayAwayError; httpx.HTTPError where a worker ended in the middle of it."""
        paths = sorted(str(path) for path in self._run_dir.glob(LINE_SOCKETS))
        turn = next(self._turn)
        headers = [
            (b"content-type", b"application/json"),
            (b"connection", b"close"),
            (b"x-headrace-class", RequestClass.OFFLINE.value.encode()),
            (b"x-request-id", request_id.encode()),
            (SUBMITTER_HEADER.encode(), msgspec.json.encode(submitter)),
        ]
        for path in (paths[(turn + step) % len(paths)] for step in range(len(paths))):
            try:
                response = await self._client(path).post(endpoint, content=bytes(line.body), headers=headers)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            return _reply(response)
        raise GatewayAwayError("no gateway worker takes lines now")

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _client(self, path: str) -> httpx.AsyncClient:
        client = self._clients.get(path)
        if client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
            client = self._clients[path] = httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=path, limits=limits),
                base_url="http://gateway",
                timeout=httpx.Timeout(None, connect=CONNECT_S),  # the gateway has a bound for every wait of its own
            )
        return client


def _reply(response: httpx.Response) -> Reply:
    code = None
    if response.status_code >= 400:
        try:
            code = msgspec.json.decode(response.content, type=_ErrorBody).error.code
        except UNDECODABLE:
            code = None  # an engine's own words
    retry_after = response.headers.get("retry-after", "")
    return Reply(
        status=response.status_code,
        request_id=response.headers.get("x-request-id", ""),
        body=response.content,
        code=code if isinstance(code, str) else None,
        retry_after_s=float(retry_after) if retry_after.isdigit() else None,
    )
