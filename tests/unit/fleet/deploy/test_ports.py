"""Ports are chosen free, kept stable, and a taken one is named with its holder."""

import os
import socket

import pytest

from headrace.domain.operator_error import OperatorError
from headrace.fleet.deploy.ports import (
    FIRST_PORT,
    PORT_SPAN,
    PortTakenError,
    bind_listener,
    choose_port,
    find_holder,
    split_address,
)

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "address"), [("127.0.0.1:7070", (HOST, 7070)), ("[::1]:80", ("::1", 80)), ("host:0", ("host", 0))]
)
def test_addresses_are_split(text: str, address: tuple[str, int]) -> None:
    """HOST:PORT, with brackets around IPv6."""
    assert split_address(text) == address


def test_a_free_preferred_port_is_kept() -> None:
    """A replica that starts again gets the port it had."""
    port = choose_port(HOST, (), seed="a")
    assert choose_port(HOST, (), seed="another", preferred=port) == port


def test_a_taken_port_is_passed_over() -> None:
    """Ports given to other replicas, and ports on which others listen, are not chosen."""
    port = choose_port(HOST, (), seed="a")
    assert choose_port(HOST, {port}, seed="a") != port
    with socket.create_server((HOST, port)):
        other = choose_port(HOST, (), seed="a", preferred=port)
    assert other != port
    assert FIRST_PORT <= other < FIRST_PORT + PORT_SPAN


def test_the_holder_of_a_port_is_named() -> None:
    """An error about a taken port names the setting, the address, the pid and the way out."""
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        holder = find_holder(port)
        assert holder is not None
        assert holder.pid == os.getpid()
        with pytest.raises(PortTakenError) as caught:
            bind_listener(f"{HOST}:{port}", key="gateway.listen")
    assert f"gateway.listen: cannot listen on {HOST}:{port}" in str(caught.value)
    assert f"pid {os.getpid()}" in str(caught.value)
    assert "set gateway.listen" in str(caught.value)
    assert find_holder(port) is None


def test_a_predecessor_of_ours_may_hold_the_port() -> None:
    """While a worker of an earlier supervisor still listens, its successor binds beside it; a stranger may not."""
    first = bind_listener(f"{HOST}:0", key="gateway.listen")
    address = f"{HOST}:{first.getsockname()[1]}"
    with pytest.raises(PortTakenError):
        bind_listener(address, key="gateway.listen")
    second = bind_listener(address, key="gateway.listen", own_pids=[os.getpid()])
    assert second.getsockname() == first.getsockname()
    first.close()
    second.close()


def test_an_unknown_host_is_named() -> None:
    """A listen address that cannot be resolved says so."""
    with pytest.raises(OperatorError, match="cannot resolve"):
        bind_listener("host.invalid:80", key="gateway.listen")
