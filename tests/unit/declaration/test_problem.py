"""How a problem is written."""

import pytest

from headrace.declaration.problem import DeclarationError, Problem, Severity, dotted, shown_value


def test_key_paths_are_written_as_people_do() -> None:
    """Names with dots, list places in brackets."""
    assert dotted(("pools", "a", "endpoints", 0)) == "pools.a.endpoints[0]"
    assert dotted(()) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ("two\nlines", '"two lines"'),
        ("x" * 100, '"' + "x" * 77 + '..."'),
        ("http://user:canary@h/x", '"http://(hidden)@h/x"'),
        ("--api-key=canary --x", '"--api-key=(hidden) --x"'),
        ("Bearer canary", '"Bearer (hidden)"'),
    ],
)
def test_values_are_quoted_short_and_without_secrets(text: str, shown: str) -> None:
    """What a message repeats cannot be long, break the line or hold a login."""
    assert shown_value(text) == shown


def test_an_error_counts_only_errors() -> None:
    """Warnings are listed, but do not count as reasons."""
    made = {"file": "f", "line": 1, "column": 2, "key": "a.b", "message": "m"}
    error = DeclarationError([Problem(severity=Severity.ERROR, **made), Problem(severity=Severity.WARNING, **made)])
    assert str(error).splitlines() == [
        "the declaration cannot be used: 1 error",
        "f:1:2: error: a.b: m",
        "f:1:2: warning: a.b: m",
    ]
