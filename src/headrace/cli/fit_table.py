"""A table that fits its screen: rows where they fit, one block a row where they do not; no word is ever cut.

Counterpart: `output.table`, which makes them.
"""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

GAP = 3
"""Columns between two cells: rich's padding on both sides and the rule's joint."""
FOLDED = 20
"""The one column that may be folded keeps at least so many columns. Chosen."""


class FitTable:
    """Rendered for the width it is given, so that a live view follows its window."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> None:
        self.columns = columns
        self.rows = rows
        self.title = title

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title is not None:
            yield Text(f"{self.title}\n", style="italic")
        if self.rows and self._least_width() > options.max_width:
            yield from self._blocks(options.max_width)
        else:
            yield self._table()

    def _needed(self) -> list[int]:
        """What each column needs for its longest cell and the longest word of its heading."""
        cells = [max((cell_len(row[at]) for row in self.rows), default=0) for at in range(len(self.columns))]
        words = [max(cell_len(word) for word in column.split()) for column in self.columns]
        return [max(pair) for pair in zip(cells, words, strict=True)]

    def _least_width(self) -> int:
        """Of the table, with its widest column folded."""
        needed = self._needed()
        widest = max(needed)
        return sum(needed) - widest + min(widest, FOLDED) + GAP * (len(needed) - 1)

    def _table(self) -> Table:
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        needed = self._needed()
        for column, width in zip(self.columns, needed, strict=True):
            is_folded = width == max(needed)
            # Where two columns are wide, rich folds both to one width whatever their least is, and cuts the second.
            is_fixed = width > FOLDED and not is_folded
            made.add_column(
                column,
                overflow="fold",
                width=width if is_fixed else None,
                min_width=None if is_folded or is_fixed else width,
            )
        for row in self.rows:
            made.add_row(*(Text(cell) for cell in row))
        return made

    def _blocks(self, width: int) -> RenderResult:
        """The first cell of a row as its headline, the others beneath it, one a line; empty ones are left out."""
        first, *others = self.columns
        heading = min(max((cell_len(column) for column in others), default=0), width // 2)
        for number, row in enumerate(self.rows):
            if number:
                yield Text("")
            yield Text(f"{first} {row[0]}", style="bold", overflow="fold")
            grid = Table.grid(padding=(0, 1, 0, 0))
            grid.add_column(width=1)
            grid.add_column(width=heading, overflow="fold")
            grid.add_column(overflow="fold")
            for column, cell in zip(others, row[1:], strict=True):
                if cell != "-":
                    grid.add_row("", Text(column), Text(cell))
            yield grid
