"""What browsers are told."""

import pytest

from headrace.gateway.entry.own_answers import CorsPolicy
from headrace.gateway.http.exchange import Exchange


def said_to(origin: bytes | None, *allowed: str) -> bytes:
    headers = {} if origin is None else {b"origin": origin}
    exchange = Exchange(connection=None, method=b"OPTIONS", path=b"/v1/models", headers=headers)
    return CorsPolicy(allowed, 600).preflight_lines(exchange, b"GET")


@pytest.mark.parametrize(
    ("origin", "allowed", "granted"),
    [
        (b"https://a", (), None),
        (None, ("https://a",), None),
        (b"https://b", ("https://a",), None),
        (b"https://a", ("https://a",), b"https://a"),
        (b"https://b", ("*",), b"*"),
    ],
)
def test_only_listed_pages_may_read_answers(
    origin: bytes | None, allowed: tuple[str, ...], granted: bytes | None
) -> None:
    """A page that is not listed hears nothing, which browsers take for no."""
    lines = said_to(origin, *allowed)
    assert lines.startswith(b"allow: GET\r\n")
    if granted is None:
        assert b"access-control-" not in lines
    else:
        assert b"access-control-allow-origin: %b\r\n" % granted in lines
        assert b"access-control-max-age: 600\r\n" in lines
