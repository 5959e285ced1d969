"""Reading and judging the input of a batch."""

from pathlib import Path

from headrace.batch.input import iter_lines, validate

CHAT = "/v1/chat/completions"
GOOD = b'{"custom_id":"%d","url":"/v1/chat/completions","body":{"model":"m"}}\n'


def test_blank_lines_are_no_lines(tmp_path: Path) -> None:
    """Lines are counted without blank ones; the last needs no line end; CR LF does no harm."""
    path = tmp_path / "in"
    path.write_bytes(b"\n" + GOOD % 1 + b" \r\n" + (GOOD % 2).rstrip(b"\n") + b"\r\n" + (GOOD % 3).rstrip(b"\n"))

    assert [index for index, _ in iter_lines(path, 1000)] == [0, 1, 2]
    assert validate(path, CHAT, most_lines=3, line_bytes=1000).errors == ()


def test_a_line_may_be_as_long_as_a_body(tmp_path: Path) -> None:
    """A longer one is an error of its own, is not held in memory, and does not shift the lines after it."""
    path = tmp_path / "in"
    path.write_bytes(GOOD % 1 + b"x" * 5000 + b"\n" + GOOD % 2)
    found = validate(path, CHAT, most_lines=9, line_bytes=len(GOOD % 1) - 1)

    assert [(error.code, error.line) for error in found.errors] == [("line_too_long", 2)]
    assert max(len(text) for _, text in iter_lines(path, 100)) <= 102


def test_errors_are_shown_up_to_a_bound(tmp_path: Path) -> None:
    """A file of another kind does not fill a batch with complaints."""
    path = tmp_path / "in"
    path.write_bytes(b"no json\n" * 1000)
    assert len(validate(path, CHAT, most_lines=5000, line_bytes=100).errors) == 20


def test_a_mark_before_the_first_line_does_no_harm(tmp_path: Path) -> None:
    """Spreadsheets and some editors begin UTF-8 files with a byte order mark, which headrace.yaml may have too."""
    path = tmp_path / "in"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD % 1 + GOOD % 2)
    assert validate(path, CHAT, most_lines=9, line_bytes=1000).errors == ()
    assert [text for _, text in iter_lines(path, 1000)] == [GOOD % 1, GOOD % 2]
    path.write_bytes(b"\xef\xbb\xbf")
    assert [error.code for error in validate(path, CHAT, most_lines=9, line_bytes=1000).errors] == ["empty_file"]
