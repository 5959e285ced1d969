"""How results are printed."""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import typer

from headrace.cli.output import console, emit, emit_line, fail, table
from headrace.declaration.builtin import builtin_declaration


@dataclass
class Row:
    name: str
    path: Path


class Struct(msgspec.Struct):
    count: int


def test_json_carries_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """A program can tell what it reads, whatever kind of value it was."""
    emit("models", {"rows": [Row("a", Path("/x"))], "struct": Struct(1)}, as_json=True, human="not shown")
    assert json.loads(capsys.readouterr().out) == {
        "schema": "headrace/models/v1",
        "data": {"rows": [{"name": "a", "path": "/x"}], "struct": {"count": 1}},
    }
    emit("declaration", builtin_declaration(), as_json=True)
    assert json.loads(capsys.readouterr().out)["data"]["version"] == 1


def test_streams_are_one_json_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of a stream can be read one by one."""
    emit_line("logs", {"a": "x\ny"})
    assert capsys.readouterr().out == '{"schema":"headrace/logs/v1","data":{"a":"x\\ny"}}\n'


def test_tables_are_plain_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No colours, no cut cells, and a dash for what is not known."""
    monkeypatch.delenv("COLUMNS", raising=False)
    long = "x" * 150
    emit("x", None, as_json=False, human=lambda: table(("name", "age s"), [(long, None), ("[b]", 1.5)]))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].split() == ["name", "age", "s"]
    assert lines[2].split() == [long, "-"]
    assert lines[3].split() == ["[b]", "1.5"]


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes get no escape codes."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert not console().is_terminal


def test_fail_prints_on_stderr_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    """stdout stays clean for programs."""
    with pytest.raises(typer.Exit) as left:
        fail("it did not work", hint="Do this.")
    assert left.value.exit_code == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "error: it did not work\nDo this.\n")


def test_a_command_to_paste_is_never_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """Text is printed as it is, however narrow the terminal, and whether it was made at once or on demand."""
    monkeypatch.setenv("COLUMNS", "40")
    text = "# " + "a note " * 20 + "\nvllm serve \\\n\t" + "x" * 200
    emit("x", None, as_json=False, human=lambda: text)
    emit("x", None, as_json=False, human=text)
    assert capsys.readouterr().out == f"{text}\n{text}\n"


def test_a_word_wider_than_the_screen_stays_whole(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """An address in a cell can be copied: the terminal may wrap it, the table does not."""
    monkeypatch.setenv("COLUMNS", "40")
    url = "https://example.org/" + "path/" * 20
    emit("x", None, as_json=False, human=lambda: table(("fact", "source"), [("a", url), ("b " + url, "see " + url)]))
    out = capsys.readouterr().out
    assert out.count(url) == 3
