"""How the verbs of `headrace engine` show rows: a table where there is room, lines where there is not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import console, table
from headrace.domain.endpoint import EngineKind

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROW_COLUMNS = 72
"""Below this, four columns side by side are no longer readable."""

EngineArgument = Annotated[
    EngineKind, typer.Argument(metavar="ENGINE", help=f"One of {', '.join(EngineKind)}.", show_default=False)
]


def rows_view(texts: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "RenderableType":
    """Put `texts` above a table of `rows`; on a narrow screen each row becomes a paragraph of `column: value` lines."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(text) for text in texts]
    if rows:
        parts.append(Text(""))
        parts.append(_lines(columns, rows) if console().width < NARROW_COLUMNS else table(columns, rows))
    return Group(*parts)


def sections_view(sections: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]]) -> "RenderableType":
    """Put several titled tables under each other; those without rows are left out."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for title, columns, rows in sections:
        if rows:
            parts.append(Text(f"\n{title}" if parts else title, style="bold"))
            parts.append(rows_view((), columns, rows))
    return Group(*parts)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "RenderableType":
    from rich.text import Text

    paragraphs: list[str] = []
    for row in rows:
        head, *others = row
        shown = [f"  {column}: {value}" for column, value in zip(columns[1:], others, strict=True) if value is not None]
        paragraphs.append("\n".join([str(head), *shown]))
    return Text("\n".join(paragraphs))
