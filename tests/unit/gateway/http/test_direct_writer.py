"""Bytes leave within the turn of the loop, in order, also where the system takes only a part of them."""

import asyncio
import socket
from contextlib import contextmanager

import pytest
import uvloop

from headrace.gateway.http.direct_writer import DirectWriter, writer_of


class Opened(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_paused = False

    def pause_writing(self) -> None:
        self.is_paused = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)


@contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        yield server


async def connect(server: socket.socket) -> tuple[asyncio.Transport, Opened, socket.socket]:
    transport, protocol = await asyncio.get_running_loop().create_connection(Opened, *server.getsockname())
    return transport, protocol, server.accept()[0]


def read_all(peer: socket.socket) -> bytes:
    with peer:
        return b"".join(iter(lambda: peer.recv(65536), b""))


def test_bytes_are_out_before_the_turn_ends():
    """The peer has them while the loop has not gone on: nothing waits for what else the turn brings."""

    async def run() -> bytes:
        with listening() as server:
            transport, _, peer = await connect(server)
            with peer:
                writer_of(transport)(b"first event")
                got = peer.recv(100, socket.MSG_DONTWAIT)
            transport.close()
            return got

    assert uvloop.run(run()) == b"first event"


def test_what_the_system_does_not_take_waits_and_keeps_its_order():
    """More than the socket's buffer: the rest waits in the transport, what follows waits behind it, the pause comes."""

    async def run() -> tuple[bytes, bytes, bool]:
        with listening() as server:
            transport, protocol, peer = await connect(server)
            write = writer_of(transport)
            sent = [bytes([number % 251]) * 65536 for number in range(200)]
            for piece in sent:
                write(piece)
            was_paused = protocol.is_paused
            transport.close()  # which sends what waits first
            got = await asyncio.to_thread(read_all, peer)
            await protocol.lost
            return b"".join(sent), got, was_paused

    sent, got, was_paused = uvloop.run(run())
    assert was_paused
    assert got == sent


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_a_closed_transport_never_writes_to_the_next_socket_of_its_number(ending: str):
    """The number of a closed socket is given away at once: bytes must not reach whoever has it now."""

    async def run() -> None:
        with listening() as server:
            transport, protocol, peer = await connect(server)
            write = writer_of(transport)
            number = transport.get_extra_info("socket").fileno()
            getattr(transport, ending)()
            write(b"late")  # closing: dropped
            await protocol.lost
            one, other = socket.socketpair()
            with one, other, peer:
                with socket.fromfd(one.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as taker:
                    assert number in (one.fileno(), other.fileno(), taker.fileno())
                    with pytest.raises(RuntimeError, match="closed"):
                        write(b"later")
                    for each in (one, other):
                        with pytest.raises(BlockingIOError):
                            each.recv(100, socket.MSG_DONTWAIT)

    uvloop.run(run())


def test_a_broken_connection_is_found_by_the_transport():
    """Writing to a peer that has gone raises nothing: the protocol hears of it, as of any other loss."""

    async def run() -> None:
        with listening() as server:
            transport, protocol, peer = await connect(server)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            peer.close()  # with a reset
            write = writer_of(transport)
            for _ in range(3):
                write(b"to nobody")
            await asyncio.wait_for(protocol.lost, 10)

    uvloop.run(run())


def test_a_transport_without_a_socket_of_its_own_writes_itself():
    """An encrypted connection's bytes are not what goes over the wire."""

    class Encrypted(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__({"sslcontext": object(), "socket": object()})
            self.written: list[bytes] = []

        def write(self, data: bytes | bytearray | memoryview) -> None:
            self.written.append(bytes(data))

    transport = Encrypted()
    write = writer_of(transport)
    write(b"secret")
    assert transport.written == [b"secret"]
    assert not isinstance(getattr(write, "__self__", None), DirectWriter)
