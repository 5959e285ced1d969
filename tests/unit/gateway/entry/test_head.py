"""What is read of a request's headers."""

import pytest

from headrace.domain.errors import ErrorCode
from headrace.gateway.entry.head import HeadReader, RequestHead
from headrace.gateway.http.exchange import Exchange

TRACE = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"


def read(path: bytes = b"/v1/chat/completions", **headers: bytes) -> tuple[RequestHead, Exchange]:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    exchange = Exchange(connection=None, method=b"POST", path=path, headers=named)
    return HeadReader().read(exchange, 1_700_000_000.0), exchange


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [(b"abc-1", True), (b"a" * 128, True), (b"a" * 129, False), (b"", False), (b"a b", False), (b"\xff", False)],
)
def test_a_request_id_is_taken_where_it_is_harmless(given: bytes, is_taken: bool) -> None:
    """Short and printable; anything else is replaced by one of ours."""
    head, _ = read(x_request_id=given)
    assert (head.request_id.encode("latin-1") == given) is is_taken
    assert is_taken or head.request_id == f"req_{head.uid}"


@pytest.mark.parametrize(
    ("given", "is_taken"),
    [
        (TRACE, True),
        (TRACE.upper(), False),
        (b"01" + TRACE[2:], False),
        (b"00-" + b"0" * 32 + TRACE[35:], False),
        (TRACE + b"-x", False),
    ],
)
def test_a_trace_is_taken_where_it_is_valid(given: bytes, is_taken: bool) -> None:
    """An invalid one is replaced, and its tracestate dropped with it."""
    head, _ = read(traceparent=given, tracestate=b"a=b")
    assert (given in head.reply_lines) is is_taken
    assert (b"tracestate" in head.engine_lines) is is_taken


@pytest.mark.parametrize(
    ("given", "timeout_s"),
    [(b"1.5", 1.5), (b"86400", 86400.0), (b"86401", None), (b"0", None), (b"-1", None), (b"nan", None), (b"x", None)],
)
def test_a_deadline_is_a_number_of_seconds(given: bytes, timeout_s: float | None) -> None:
    """More than 0, at most a day; anything else is the caller's error."""
    head, exchange = read(x_request_timeout=given)
    assert head.timeout_s == timeout_s
    assert (exchange.error is None) is (timeout_s is not None)


def test_compressed_bodies_are_refused() -> None:
    """They could unpack to anything."""
    _, exchange = read(content_encoding=b"gzip")
    assert exchange.error is not None
    assert exchange.error.code is ErrorCode.INVALID_REQUEST
