"""HOST:PORT and URLs."""

import pytest

from headrace.declaration.addresses import is_loopback, parse_endpoint_url, parse_listen


def test_listen_addresses() -> None:
    """IPv4, names and bracketed IPv6, with ports from 0 to 65535."""
    assert parse_listen("127.0.0.1:0") == ("127.0.0.1", 0)
    assert parse_listen("localhost:65535") == ("localhost", 65535)
    assert parse_listen("[::]:7070") == ("::", 7070)


@pytest.mark.parametrize(
    "text", ["", ":7070", "h", "h:", "h:-1", "h:65536", "h:7 0", "::1:7070", "[x]:1", "a b:1", "h:٣"]
)
def test_what_is_no_listen_address(text: str) -> None:
    """Everything else is refused."""
    with pytest.raises(ValueError, match=r"is not HOST:PORT|no valid"):
        parse_listen(text)


def test_endpoint_urls_know_their_default_port() -> None:
    """https is 443, http is 80, and a path prefix is kept."""
    address = parse_endpoint_url("https://h.example.com/a/b/")
    assert (address.is_tls, address.host, address.port, address.path) == (True, "h.example.com", 443, "/a/b")
    assert parse_endpoint_url("http://[::1]").port == 80


def test_loopback() -> None:
    """What only this machine can reach."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost", "a.localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com"))
