"""`headrace route`: where the gateway would send a request now, and why; whether prefill and decode apart pay."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.control_client import ControlClient, get_supervisor
from headrace.cli.handover_view import mismatch_lines
from headrace.cli.options import JsonOption, verb_app
from headrace.cli.output import EXIT_PROBLEMS, emit, fail, table
from headrace.cli.route_advice import advice_view, only_of
from headrace.domain.quota import NANOS
from headrace.domain.request import RequestClass
from headrace.domain.routing_status import CandidateView, RouteExplanation, SplitView
from headrace.settings import load_settings

if TYPE_CHECKING:
    from rich.console import RenderableType

app = verb_app()
MODEL_COLUMNS = ("first token s", "price", "quality", "cached tokens")
ENDPOINT_COLUMNS = ("in flight", "queued tokens", "cached tokens", "to compute", "speed")


@app.callback(epilog="Example: headrace route explain --request request.json")
def route() -> None:
    """Look into the gateway's choice of endpoints."""


@app.command(epilog="Example: headrace route explain --request request.json --tenant team-a --class offline")
def explain(
    request: Annotated[str, typer.Option("--request", "-r", metavar="FILE", help="Body of a request; - reads stdin.")],
    path: Annotated[str, typer.Option("--path", help="Where it would be sent.")] = "/v1/chat/completions",
    tenant: Annotated[str, typer.Option("--tenant", "-t", metavar="TENANT", help="Who would send it.")] = "",
    request_class: Annotated[RequestClass | None, typer.Option("--class", help="How urgent it is.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the candidates, what filtered whom, the parts of each cost, and the pick. Exits with 3 where nothing can
    answer. One gateway worker is asked: others may have learned otherwise.
    """
    settings = load_settings()
    get_supervisor(settings)
    body = _read(request)
    with ControlClient(settings) as client:
        name = None if request_class is None else request_class.value
        found = client.explain_route(body, path=path, tenant=tenant, request_class=name)
    emit("route", found, as_json=as_json, human=lambda: explanation_view(found))
    if found.picked is None:
        raise typer.Exit(EXIT_PROBLEMS)


@app.command(epilog="Example: headrace route advise --pool decode")
def advise(
    pool: Annotated[str | None, typer.Option("--pool", "-p", metavar="POOL", help="Only this pool's model.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show whether prefill and decode on engines of their own pay for the last hour's traffic, what ratio of engines it
    wants, and what to change. Exits with 3 where there is something to change.

    All gateway workers are added up. What engines can do is learned from what
    they did, and never taken to be more; what was not measured is named. Pools
    without roles are told what handing a prompt over may cost at most.
    """
    settings = load_settings()
    get_supervisor(settings)
    with ControlClient(settings) as client:
        found = only_of(pool, client.split_advice())
    emit("route-advise", found, as_json=as_json, human=lambda: advice_view(found))
    if any(one.changes for one in found.models):
        raise typer.Exit(EXIT_PROBLEMS)


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"the request cannot be read: {error}")


def explanation_view(found: RouteExplanation) -> "RenderableType":
    """The decision for a person."""
    from rich.console import Group

    output = "" if found.output_tokens is None else f", {found.output_tokens} output tokens expected"
    lines = [
        *_choice_lines(found),
        f"model {found.model}, class {found.request_class}" + (f", tenant {found.tenant}" if found.tenant else ""),
        f"about {found.input_tokens} input tokens in {found.blocks} blocks{output}",
        f"picked {found.picked} ({found.reason})" if found.picked else f"nothing can answer: {found.reason}",
    ]
    if found.split is not None:
        lines += [split_line(found.split), *mismatch_lines(found.split.mismatches)]
    scored = [each for each in found.candidates if each.cost_s is not None]
    left_out = [each for each in found.candidates if each.cost_s is None]
    shown: list[RenderableType] = ["\n".join(lines)]
    if found.models:
        shown += _models_tables(found)
    if scored:
        shown.append(_scored_table(scored))
    if left_out:
        rows = [(each.endpoint, each.outcome, each.reason) for each in left_out]
        shown.append(table(("endpoint", "left out", "why"), rows))
    return Group(*shown)


def split_line(split: SplitView) -> str:
    """Whether another engine would compute the prompt, and why not."""
    ways = {
        "no_gain": "handing it over is predicted to save nothing",
        "short": "little of its prompt is to be computed",
        "mostly_cached": "most of its prompt is cached where it goes",
        "no_pair": "no prefill and decode engine that fit have room",
        "pair_rests": "the best pair has just failed to hand over",
        "kv_layout_mismatch": "no prefill engine's KV fits a decode engine",
        "cannot": "a field of it, or its API, keeps it whole",
        "gain": f"{split.prefill} computes the prompt, {split.decode} answers",
    }
    gain = "" if split.gain_s is None else f"; predicted gain {split.gain_s:.3f} s"
    parts = ""
    if split.prefill_s is not None and split.transfer_s is not None and split.decode_s is not None:
        parts = (
            f" ({split.prefill} to {split.decode}: prefill {split.prefill_s:.3f} s, transfer {split.transfer_s:.3f} s, "
            f"decode {split.decode_s:.3f} s; versions: {split.prefill_version or 'not measured'} and "
            f"{split.decode_version or 'not measured'})"
        )
    return f"{'split' if split.is_split else 'not split'}: {ways.get(split.reason, split.reason)}{gain}{parts}"


def _choice_lines(found: RouteExplanation) -> list[str]:
    """Which model was chosen where the name stands for several, and why."""
    lines = [
        f"{found.requested_model} prefers {found.prefer}: {each.model} ({each.reason})"
        if each.outcome == "picked"
        else f"{each.model}: {each.reason}"
        for each in found.models
        if each.cost_s is not None and each.reason
    ]
    return [*lines, ""] if lines else []


def _models_tables(found: RouteExplanation) -> "list[RenderableType]":
    kinds = list(found.models[0].parts_s)
    rows = [
        (
            f"{each.model}{' *' if each.outcome == 'picked' else ''}",
            _seconds(each.cost_s),
            *(_seconds(each.parts_s[kind]) for kind in kinds),
            None if each.wait_s is None or each.ttft_s is None else f"{each.wait_s + each.ttft_s:.3f}",
            None if each.price_nanos is None else f"{each.price_nanos / NANOS:.6f}",
            each.quality,
            each.cached_tokens,
        )
        for each in found.models
        if each.cost_s is not None
    ]
    columns = ("model", "cost s", *(f"{kind} s" for kind in kinds), *MODEL_COLUMNS)
    tables: list[RenderableType] = [table(columns, rows, expendable=("cached tokens",))] if rows else []
    left_out = [(each.model, each.reason) for each in found.models if each.cost_s is None]
    return [*tables, table(("model left out", "why"), left_out)] if left_out else tables


def _seconds(cost_s: float | None) -> str | None:
    return None if cost_s is None else f"{cost_s:.3f}"


def _scored_table(scored: list[CandidateView]) -> "RenderableType":
    kinds = list(scored[0].parts_s)
    rows = [
        (
            f"{each.endpoint}{' *' if each.outcome == 'picked' else ''}",
            f"{each.cost_s:.4f}",
            *(f"{each.parts_s[kind]:.4f}" for kind in kinds),
            each.in_flight,
            each.queued_tokens,
            each.cached_tokens,
            each.uncached_tokens,
            None if each.speed_factor is None else f"x{each.speed_factor:g}",
        )
        for each in scored
    ]
    return table(("endpoint", "cost s", *(f"{kind} s" for kind in kinds), *ENDPOINT_COLUMNS), rows)
