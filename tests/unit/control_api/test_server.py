"""The control API's sockets: clashes are named, leftovers replaced, signals left alone."""

import os
import signal
import socket
import stat

import pytest

from headrace.control_api.server import bind_tcp, bind_unix
from headrace.domain.operator_error import OperatorError


def test_a_port_in_use_is_named():
    """The operator reads which address and which key to change."""
    with bind_tcp("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(OperatorError, match=f"127.0.0.1:{port}") as caught:
            bind_tcp("127.0.0.1", port)
    assert caught.value.hint == "Another program uses it: change gateway.control."


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
