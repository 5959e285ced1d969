"""Bytes of HTTP answers."""

from email.utils import parsedate_to_datetime

import pytest

from headrace.gateway.http.wire import CHUNK, DateLine, status_line


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, b"HTTP/1.1 200 OK\r\n"),
        (499, b"HTTP/1.1 499 Client Closed Request\r\n"),
        (599, b"HTTP/1.1 599 Unknown\r\n"),
    ],
)
def test_every_status_has_a_line(status: int, line: bytes) -> None:
    """Also statuses that no standard names."""
    assert status_line(status) == line


def test_a_chunk_has_its_length_in_hexadecimal() -> None:
    """The framing of chunked bodies."""
    assert CHUNK % (26, b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"


def test_the_date_is_a_date() -> None:
    """One header line, in GMT."""
    date = DateLine()
    line = date.line.decode()
    assert line.endswith(" GMT\r\n")
    assert parsedate_to_datetime(line.removeprefix("date: ").strip())
    assert date.ok == b"HTTP/1.1 200 OK\r\n" + date.line
