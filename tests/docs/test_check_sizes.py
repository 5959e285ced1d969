"""The check of sizes and names finds what it is there to find."""

from pathlib import Path

import pytest
from tools.check_sizes import FILE_LINES, FUNCTION_LINES, check_file, read_allowances, words_of


def check(folder: Path, name: str, text: str, allowed: dict[str, int] | None = None) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return list(check_file(path, allowed or {}, set(), folder))


def function(lines: int) -> str:
    return "def work():\n" + "    x = 1\n" * (lines - 1)


def test_files_and_functions_have_limits(tmp_path: Path) -> None:
    """At the limit nothing is said, one line more is refused; tests may be longer, __init__.py must be short."""
    assert check(tmp_path, "src/a.py", "x = 1\n" * FILE_LINES) == []
    assert check(tmp_path, "src/a.py", "x = 1\n" * (FILE_LINES + 1)) != []
    assert check(tmp_path, "tests/a.py", "x = 1\n" * (FILE_LINES + 1)) == []
    assert check(tmp_path, "src/__init__.py", "x = 1\n" * 41) != []
    assert check(tmp_path, "src/a.py", function(FUNCTION_LINES)) == []
    assert len(check(tmp_path, "src/a.py", function(FUNCTION_LINES + 1))) == 1


def test_generated_files_and_allowances_are_exempt(tmp_path: Path) -> None:
    """A generated file says so on line 1; an allowance raises one limit."""
    assert check(tmp_path, "src/a.py", "# generated\n" + "x = 1\n" * FILE_LINES) == []
    assert check(tmp_path, "src/a.py", function(70), {"src/a.py:work": 70}) == []
    assert check(tmp_path, "src/a.py", function(71), {"src/a.py:work": 70}) != []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/utils.py", ""),
        ("src/stream_helpers.py", ""),
        ("src/a.py", "class KeyManager: ..."),
        ("src/a.py", "class BaseDriver: ..."),
        ("src/a.py", "def data(): ..."),
        ("src/a.py", "def parse_v2(): ..."),
    ],
)
def test_names_that_say_nothing_are_refused(tmp_path: Path, name: str, text: str) -> None:
    """Modules, classes and functions are named by what they are or do."""
    assert len(check(tmp_path, name, text)) == 1


def test_names_that_only_contain_such_a_word_pass(tmp_path: Path) -> None:
    """A database is not data, and asyncio dictates data_received."""
    text = "class Database: ...\ndef new_key(): ...\ndef data_received(): ...\n"
    assert check(tmp_path, "src/database.py", text) == []
    assert words_of("HTTPServer_v2") == ["http", "server", "v2"]


def test_there_is_no_exception() -> None:
    """The list of exceptions is empty, and may only shrink."""
    assert read_allowances() == {}
