"""How the verbs of `headrace engine` show rows: texts above a table, and several titled tables under each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import table
from headrace.domain.endpoint import EngineKind

if TYPE_CHECKING:
    from rich.console import RenderableType

EngineArgument = Annotated[
    EngineKind, typer.Argument(metavar="ENGINE", help=f"One of {', '.join(EngineKind)}.", show_default=False)
]


def rows_view(texts: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "RenderableType":
    """Put `texts` above a table of `rows`."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(text, overflow="fold") for text in texts]
    if rows:
        if parts:
            parts.append(Text(""))
        parts.append(table(columns, rows))
    return Group(*parts)


def sections_view(sections: Sequence[tuple[str, Sequence[str], Sequence[Sequence[object]]]]) -> "RenderableType":
    """Put several titled tables under each other; those without rows are left out."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for title, columns, rows in sections:
        if rows:
            parts += [Text(f"\n{title}" if parts else title, style="bold"), table(columns, rows)]
    return Group(*parts)
