"""`headrace cache`: how often prompts are found in the engines' prefix caches, and why they are not."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cache_misses.explain import Explanation, PromptFileError, explain_bodies
from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import EXIT_PROBLEMS, emit, fail, table
from headrace.domain.miss_status import MissRow, MissStatus
from headrace.domain.request import ApiDialect
from headrace.domain.routing_status import EndpointCache, HitCounts, RoutingStatus
from headrace.settings import load_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()
SHOWN_FAMILIES = 10
COUNTS = ("answers", "input tokens", "cached tokens", "hit ratio", "expected tokens")


@app.callback(invoke_without_command=True, epilog="Example: headrace cache --json")
def cache(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show the prefix hit ratio by model, tenant, family of prompts and endpoint, since each gateway worker started.

    Counted are answers of models with several endpoints whose engines tell `cached_tokens`. A family is all prompts
    with the same first kilobyte; its name is a keyed hash, from which nothing can be read.
    """
    if context.invoked_subcommand is not None:
        return
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        found = client.cache()
    emit("cache", found, as_json=as_json, human=lambda: cache_view(found))


@app.command(epilog="Example: headrace cache misses --json")
def misses(as_json: JsonOption = False) -> None:
    """Show why prompts that could have shared a cached beginning did not: cause, place, tokens lost, what to do.

    Found out from keyed hashes of a sample of the last hour's requests; no prompt text is kept. What happened fewer
    than three times is left out. "alike" names prompts whose first text is the same but for times, ids and numbers:
    wider than a family of `headrace cache`. Exits with 3 where there are misses to show.
    """
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        found = client.misses()
    emit("cache-misses", found, as_json=as_json, human=lambda: misses_view(found))
    if found.rows:
        raise typer.Exit(EXIT_PROBLEMS)


@app.command(epilog="Example: headrace cache explain monday.json tuesday.json")
def explain(
    before: Annotated[Path, typer.Argument(metavar="A", help="Body of a request.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Body of a later one that should have shared its cache.")],
    dialect: Annotated[ApiDialect, typer.Option("--dialect", help="Which API they are for.")] = (
        ApiDialect.CHAT_COMPLETIONS
    ),
    as_json: JsonOption = False,
) -> None:
    """Show where the prompt of request B leaves that of A, and why, without a gateway. Exits with 3 where it does."""
    try:
        found = explain_bodies(_read(before), _read(after), dialect)
    except PromptFileError as error:
        fail(str(error))
    emit("cache-explain", found, as_json=as_json, human=lambda: explanation_view(found))
    if found.cause is not None:
        raise typer.Exit(EXIT_PROBLEMS)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fail(f"the request cannot be read: {error}")


def misses_view(found: MissStatus) -> "RenderableType":
    """Rows for a person, and how much was looked at."""
    from rich.console import Group

    looked = (
        f"{found.examined} of {found.answers} answers that told their cached tokens were looked at, "
        f"{found.explained} missed for a reason"
    )
    if not found.answers:
        return "nothing measured yet: no answer has told its cached tokens"
    if not found.rows:
        return f"no misses to explain in the last hour\n{looked}"
    heads = ("model", "tenant", "alike", "cause", "where", "requests", "tokens lost per hour", "what to do")
    return Group(table(heads, map(_miss_row, found.rows)), looked)


def _miss_row(row: MissRow) -> tuple[object, ...]:
    where = row.place or f"everywhere, at {row.endpoint}"
    if row.byte_offset is not None:
        where += f", byte {_span(row.byte_offset, row.grain_bytes)} (about token {row.token_offset})"
    lost = f"{row.tokens_lost_per_hour:.0f}"
    return (row.model, row.tenant, row.alike, row.cause.value, where, row.requests, lost, row.advice)


def _span(first: int, grain: int | None) -> str:
    return str(first) if grain is None or grain <= 1 else f"{first}-{first + grain - 1}"


def explanation_view(found: Explanation) -> str:
    """The difference for a person."""
    if found.cause is None:
        return f"no difference: one prompt is the beginning of the other ({found.shared_bytes} bytes in common)"
    return (
        f"{found.cause.value} at {found.place}, byte {found.byte_offset} (about token {found.token_offset})\n"
        f"in common: {found.shared_bytes} bytes from the beginning, {found.lost_bytes} bytes behind that, lost\n"
        f"what to do: {found.advice}"
    )


def cache_view(found: RoutingStatus) -> "RenderableType":
    """The counts for a person."""
    from rich.console import Group
    from rich.text import Text

    if not found.tenants and not found.endpoints:
        return "nothing measured yet: no answer of a model with several endpoints has told its cached tokens"
    shown: list[RenderableType] = []
    if found.tenants:
        shown += [_titled("by tenant", ("model", "tenant", *COUNTS), map(_row, found.tenants)), Text("")]
        families = f"by family: prompts with the same first kilobyte; the {SHOWN_FAMILIES} with most input"
        rows = map(_row, found.families[:SHOWN_FAMILIES])
        shown += [_titled(families, ("model", "family", *COUNTS), rows), Text("")]
    columns = ("endpoint", "blocks", "held tokens", "of", "trust", *COUNTS[:4])
    shown.append(_titled("by endpoint: what its cache is believed to hold", columns, _endpoints(found.endpoints)))
    return Group(*shown)


def _titled(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> "RenderableType":
    return table(columns, rows, title=title, expendable=("expected tokens", "blocks", "trust", "input tokens"))


def _row(counts: HitCounts) -> tuple[object, ...]:
    ratio = counts.prefix_hit_ratio
    return (
        counts.model,
        counts.name,
        counts.requests,
        counts.input_tokens,
        counts.cached_tokens,
        "not measured" if ratio is None else f"{ratio:.1%}",
        counts.expected_tokens,
    )


def _endpoints(found: Iterable[EndpointCache]) -> Iterable[tuple[object, ...]]:
    for each in found:
        ratio = f"{each.cached_tokens / each.input_tokens:.1%}" if each.input_tokens else "not measured"
        yield (
            each.endpoint,
            each.blocks,
            each.held_tokens,
            each.capacity_tokens,
            f"{each.trust_ratio:.0%}",
            each.requests,
            each.input_tokens,
            each.cached_tokens,
            ratio,
        )
