"""Tables that fit their screen."""

import io

import pytest
from rich.console import Console

from headrace.cli.fit_table import FitTable


@pytest.mark.parametrize("columns", [40, 80, 100, 110, 120, 160, 200])
def test_no_cell_loses_its_end_where_two_columns_are_wide(columns: int) -> None:
    """The longest column is folded; the next longest is not cut at the edge of the screen."""
    rows = [["start", " ".join(["word"] * 22) + " LAST", "a/source/of/fifty/characters/or/so/here.py 0.5.23, END"]]
    out = io.StringIO()
    Console(file=out, width=columns).print(FitTable(("about", "fact", "source"), rows, None))
    shown = out.getvalue()
    assert "END" in shown
    assert "LAST" in shown
    assert all(len(line) <= columns for line in shown.splitlines())


def shown(table: FitTable, columns: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=columns).print(table)
    return out.getvalue().splitlines()


WIDE = FitTable(
    ("request", "class", "pid", "note"),
    [["0197f3a2-7c1e-7b4d-9c55-3f2a9e6d1b08", "interactive", "4711", "-"]],
    None,
    expendable=("pid", "class"),
)


def test_the_least_columns_go_first_and_are_named() -> None:
    """A narrow screen shows the rows without them, and says which; what is empty goes without a word."""
    assert shown(WIDE, 80)[0].split() == ["request", "class", "pid", "note"]
    assert shown(WIDE, 60)[0].split() == ["request", "class", "pid"]
    assert shown(WIDE, 52)[0].split() == ["request", "class"]
    assert " ".join(" ".join(shown(WIDE, 52)[3:]).split()) == "left out for want of width: pid (--json has all)"
    assert " ".join(" ".join(shown(WIDE, 45)[3:]).split()) == "left out for want of width: class, pid (--json has all)"


def test_an_id_is_never_folded() -> None:
    """Where not even its own column fits, the row becomes a block of lines, with all that it has."""
    assert shown(WIDE, 45)[2].split() == ["0197f3a2-7c1e-7b4d-9c55-3f2a9e6d1b08"]
    assert [line.split()[0] for line in shown(WIDE, 30) if line.startswith("  ")] == ["class", "pid"]


@pytest.mark.parametrize("columns", range(30, 90))
def test_no_heading_and_no_cell_is_cut_at_any_width(columns: int) -> None:
    """Every number and every word of every heading that is shown is whole."""
    table = FitTable(("endpoint", "in flight", "KV used %"), [["far/10.0.0.5:8000", "32", "91"]], None)
    text = " ".join(shown(table, columns)).split()
    assert {"far/10.0.0.5:8000", "32", "91", "flight", "used", "%"} <= set(text)


@pytest.mark.parametrize("columns", range(33, 60))
def test_no_word_of_what_is_folded_is_cut(columns: int) -> None:
    """The one column that is folded is never narrower than its longest word."""
    table = FitTable(("who", "change"), [["ada", "search: limits.requests_per_minute: 60 -> 600"]], None)
    words = " ".join(shown(table, columns)).split()
    assert "limits.requests_per_minute:" in words
