"""The control API's sockets: leftovers are replaced, signals left alone, slow requests cut off."""

import asyncio
import os
import signal
import socket
import stat

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headrace.control_api.access import local_owner
from headrace.control_api.server import ControlServer, bind_unix
from headrace.domain.operator_error import OperatorError
from headrace.settings import user_name


def test_a_socket_left_behind_is_replaced(tmp_path):
    """After kill -9 the next start just works."""
    path = tmp_path / "run" / "control.sock"
    bind_unix(path).close()
    with bind_unix(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert [entry.name for entry in path.parent.iterdir()] == ["control.sock"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_path_too_long_for_a_socket_is_named(tmp_path):
    """A deep state folder gives a sentence, not a traceback."""
    path = tmp_path / ("x" * 120) / "control.sock"
    with pytest.raises(OperatorError, match="cannot listen at"):
        bind_unix(path)


async def test_serving_takes_no_signals(api):
    """The supervisor's own signal handling stays in force."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        assert (await api.tcp.get("/health")).status_code == 200
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await api.tcp.get("/health")).status_code == 200
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


async def answer(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


HEAD = b"POST / HTTP/1.1\r\nhost: control\r\ncontent-length: 4\r\n"


@pytest.mark.parametrize(
    "sent", [b"", HEAD[:20], HEAD, HEAD + b"\r\n", HEAD + b"\r\nab", HEAD + b"\r\nabcd" + HEAD[:9]]
)
async def test_a_request_that_does_not_come_whole_is_cut_off(sent: bytes):
    """Whatever part is missing, the first request's or the next one's: no connection is held for ever."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = ControlServer(
        [(Starlette(routes=[Route("/", answer, methods=["POST"])]), listening)], request_timeout_s=0.4
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(sent)
        if b"abcd" in sent:
            assert b" 200 OK" in await reader.readuntil(b"4 bytes")
        async with asyncio.timeout(20):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
        server.stop()


async def test_whole_requests_may_take_their_time_between():
    """The bound is for a request on its way, not for the pause after an answer or for the answer itself."""
    listening = socket.create_server(("127.0.0.1", 0))

    async def slowly(request: Request) -> PlainTextResponse:
        await request.body()
        await asyncio.sleep(1.0)
        return PlainTextResponse("done")

    app = Starlette(routes=[Route("/", slowly, methods=["POST"])])
    server = ControlServer([(app, listening)], request_timeout_s=0.8)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        for _ in range(2):
            writer.write(HEAD + b"\r\nabcd")
            async with asyncio.timeout(20):
                assert b" 200 OK" in await reader.readuntil(b"done")
            await asyncio.sleep(1.0)
        writer.close()
        server.stop()


async def test_whoever_opens_the_own_socket_is_known_by_name(tmp_path):
    """The audit log says which user of this machine asked, as for changes made without a running instance."""

    async def who(request: Request) -> PlainTextResponse:
        return PlainTextResponse(local_owner(request.client.host if request.client else None).subject)

    path = tmp_path / "control.sock"
    app = Starlette(routes=[Route("/", who)])
    server = ControlServer([(app, bind_unix(path))])
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with asyncio.TaskGroup() as group:
        group.create_task(server.run())
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            answer = await client.get("/")
        server.stop()
    assert answer.text == f"local:{user_name(os.getuid())}"
    assert local_owner("127.0.0.1").subject == "local"
