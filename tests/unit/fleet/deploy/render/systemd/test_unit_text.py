"""Words in unit files."""

import pytest

from headrace.fleet.deploy.render.systemd.unit_text import Remark, argument, command, quoted, unit_text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("--port", "--port"),
        ("", '""'),
        ("a b", '"a b"'),
        ('{"a":1}', r'"{\"a\":1}"'),
        ("100%", '"100%%"'),
        ("$HOME", '"$$HOME"'),
        ("a\\b", r'"a\\b"'),
        ("two\nlines", r'"two\nlines"'),
        ("it's", '"it\'s"'),
        ("a\rExecStartPre=/bin/x", r'"a\rExecStartPre=/bin/x"'),
        ("a\x1b\x0bb\x7f", r'"a\x1b\x0bb\x7f"'),
    ],
)
def test_a_word_is_quoted_where_it_must_be(word: str, expected: str) -> None:
    """Nothing of a word is taken for a specifier, a variable or an escape."""
    assert argument(word) == expected


def test_a_dollar_stays_one_where_no_command_is() -> None:
    """Environment= expands no variables."""
    assert quoted("A=$B") == '"A=$B"'


def test_a_command_has_one_flag_a_line() -> None:
    """So that a change shows as one line."""
    assert command(["run", "x", "--a", "1", "--b"]) == "run x \\\n    --a 1 \\\n    --b"


def test_sections_and_remarks() -> None:
    """Comments stand above what they are about."""
    text = unit_text(["head"], [("Unit", [Remark("why"), ("After", "x")])])
    assert text == "# head\n\n[Unit]\n# why\nAfter=x\n"
