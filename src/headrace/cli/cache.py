"""`headrace cache`: how often prompts are found in the engines' prefix caches, as the answers' usage tells."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import emit, table
from headrace.domain.routing_status import EndpointCache, HitCounts, RoutingStatus
from headrace.settings import load_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()
SHOWN_FAMILIES = 10
COUNTS = ("answers", "input tokens", "cached tokens", "hit ratio", "expected tokens")


@app.command(epilog="Example: headrace cache --json")
def cache(as_json: JsonOption = False) -> None:
    """Show the prefix hit ratio by model, tenant, family of prompts and endpoint, since each gateway worker started.

    Counted are answers of models with several endpoints whose engines tell `cached_tokens`. A family is all prompts
    with the same first kilobyte; its name is a keyed hash, from which nothing can be read.
    """
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        found = client.cache()
    emit("cache", found, as_json=as_json, human=lambda: cache_view(found))


def cache_view(found: RoutingStatus) -> "RenderableType":
    """The counts for a person."""
    from rich.console import Group

    if not found.tenants and not found.endpoints:
        return "nothing measured yet: no answer of a model with several endpoints has told its cached tokens"
    shown: list[RenderableType] = []
    if found.tenants:
        shown.append(table(("model", "tenant", *COUNTS), map(_row, found.tenants)))
        shown.append(table(("model", "family", *COUNTS), map(_row, found.families[:SHOWN_FAMILIES])))
    shown.append(table(("endpoint", "blocks", "held tokens", "of", "trust", *COUNTS[:4]), _endpoints(found.endpoints)))
    return Group(*shown)


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
