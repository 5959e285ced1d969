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
