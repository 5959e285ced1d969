"""A table that fits its screen: rows where they fit, without its least columns where they fit so, else one block a row.
No word is ever cut, and what was left out is said.

Counterpart: `output.table`, which makes them.
"""

from collections.abc import Sequence
from textwrap import wrap

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from headrace.cli.output import NOT_MEASURED

GAP = 3
"""Columns between two cells: padding and the rule's joint."""
TIGHT_GAP = 2
"""The same where the screen is narrow."""
DENSE_GAP = 1
"""The same in a table of numbers, where no cell is made of several words."""
_BESIDE_HEADING = 3
"""Columns around a heading in a block: what stands before it and behind it."""
FOLDED = 20
"""The one column that may be folded keeps at least so many columns, and those of its longest word. Chosen."""


class FitTable:
    """Rendered for the width it is given, so that a live view follows its window."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        title: str | None,
        expendable: Sequence[str] = (),
        *,
        is_dense: bool = False,
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.title = title
        self.expendable = expendable
        """Columns that a narrow screen may do without, the least of them first."""
        self.tight_gap = DENSE_GAP if is_dense else TIGHT_GAP

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title is not None:
            yield Text(f"{self.title}\n", style="italic")
        width = options.max_width
        if not self.rows or self._width(GAP) <= width:
            yield self._table(width, GAP)
            return
        hollow = [column for at, column in enumerate(self.columns) if all(row[at] == NOT_MEASURED for row in self.rows)]
        fitting, left_out = self._narrowed(width, hollow)
        if fitting is None:
            solid = self
            for column in hollow:
                solid = solid._without(column)
            yield from solid._blocks(width)
            left_out = hollow
        else:
            yield fitting._table(width, fitting.tight_gap)
        unmeasured = [column for column in left_out if column in hollow]
        unseen = [column for column in left_out if column not in hollow]
        if unmeasured:
            yield Text(f"not measured: {', '.join(unmeasured)}", style="dim")
        if unseen:
            yield Text(f"left out for want of width: {', '.join(unseen)} (--json has all)", style="dim")

    def _narrowed(self, width: int, hollow: Sequence[str]) -> "tuple[FitTable | None, list[str]]":
        """Leave out columns until the rest fits, first those with nothing in them; None where nothing helps."""
        here, left_out = self, list[str]()
        empty = [column for at, column in enumerate(self.columns) if all(row[at] == "-" for row in self.rows)]
        for column in [*dict.fromkeys((*empty, *hollow, *self.expendable)), None]:
            if here._width(here.tight_gap, is_folded=True) <= width:
                return here, [each for each in self.columns if each in left_out]
            if column is not None and column in here.columns:
                here = here._without(column)
                left_out += [] if column in empty else [column]
        return None, []

    def _without(self, column: str) -> "FitTable":
        at = list(self.columns).index(column)
        rows = [(*row[:at], *row[at + 1 :]) for row in self.rows]
        columns, is_dense = (*self.columns[:at], *self.columns[at + 1 :]), self.tight_gap == DENSE_GAP
        return FitTable(columns, rows, self.title, self.expendable, is_dense=is_dense)

    def _needed(self) -> list[int]:
        """What each column needs for its longest cell and the longest word of its heading."""
        cells = [max((cell_len(row[at]) for row in self.rows), default=0) for at in range(len(self.columns))]
        words = [max(cell_len(word) for word in column.split()) for column in self.columns]
        return [max(pair) for pair in zip(cells, words, strict=True)]

    def _folding(self, needed: Sequence[int]) -> int | None:
        """The widest column made of words: it may be folded. Ids and numbers stay whole."""
        wordy = [at for at in range(len(needed)) if any(" " in row[at] for row in self.rows)]
        return max(wordy, key=lambda at: needed[at], default=None)

    def _width(self, gap: int, *, is_folded: bool = False) -> int:
        """Of the table; `is_folded`: with its widest column of words folded as far as it may be."""
        needed = self._needed()
        folding = self._folding(needed) if is_folded else None
        if folding is not None:
            words = (cell_len(word) for row in self.rows for word in row[folding].split())
            needed[folding] = min(needed[folding], max(FOLDED, *words))
        return sum(needed) + _between(needed, gap)

    def _table(self, width: int, gap: int) -> Table:
        """Every column as wide as it needs; headings get what is left, so that they need no second line."""
        needed = self._needed()
        left = width - _between(needed, gap) - sum(needed)
        folding = self._folding(needed)
        if left < 0 and folding is not None:
            needed[folding] = max(1, needed[folding] + left)
        made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap - 1, 0, 0))
        for column, column_width in zip(self.columns, needed, strict=True):
            more = max(0, min(left, cell_len(column) - column_width))
            left -= more
            made.add_column(column, overflow="fold", width=column_width + more)
        for row in self.rows:
            made.add_row(*(Text(cell) for cell in row))
        return made

    def _blocks(self, width: int) -> RenderResult:
        """The first cell of a row as its headline, the others beneath it, one a line; empty ones are left out."""
        first, *others = self.columns
        heading = min(max((cell_len(column) for column in others), default=0), width // 2)
        room = width - heading - _BESIDE_HEADING
        for number, row in enumerate(self.rows):
            if number:
                yield Text("")
            headline = Text(f"{first} {row[0]}", overflow="fold")
            headline = headline if _longest_url(row[0]) <= width else _whole(headline.plain, width, indent="")
            headline.stylize("bold")
            yield headline
            for column, cell in zip(others, row[1:], strict=True):
                if cell == "-":
                    continue
                if _longest_url(cell) > room:
                    yield Text(f"  {column}")
                    yield _whole(cell, width)
                    continue
                grid = Table.grid(padding=(0, 1, 0, 0))
                grid.add_column(width=1)
                grid.add_column(width=heading, overflow="fold")
                grid.add_column(overflow="fold")
                grid.add_row("", Text(column), Text(cell))
                yield grid


def _whole(text: str, width: int, indent: str = "  ") -> Text:
    """A cell that folds between words only: an address too wide for the screen is left to the terminal to wrap."""
    wrapped = wrap(
        *(text, width), initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return Text("\n".join(wrapped), no_wrap=True, overflow="ignore")


def _longest_url(text: str) -> int:
    return max((cell_len(word) for word in text.split() if "://" in word), default=0)


def _between(columns: Sequence[object], gap: int) -> int:
    """What lies between columns, and the padding that rich keeps behind the last one."""
    return gap * (len(columns) - 1) + gap - 1
