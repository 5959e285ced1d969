"""What `headrace route advise` shows: figures, the verdict and what to change, model by model."""

from typing import TYPE_CHECKING

from headrace.cli.output import table
from headrace.declaration.nearest import did_you_mean
from headrace.domain.operator_error import OperatorError, UnknownNameError
from headrace.domain.split_advice import ModelAdvice, SplitAdvice
from headrace.domain.split_ratio import Ratio
from headrace.domain.split_status import ModelLoad, PoolPace

if TYPE_CHECKING:
    from rich.console import RenderableType

UNMEASURED = "not measured"
STAGES = {
    "prefill_queue": "its queue at prefill",
    "prefill": "its prefill",
    "transfer": "its transfer",
    "decode_queue": "its queue and first step at decode",
}
REASONS = {
    "gain": "split",
    "no_gain": "whole: handing it over was predicted to save nothing",
    "short": "whole: little of its prompt was to be computed",
    "mostly_cached": "whole: most of its prompt was cached where it went",
    "no_pair": "whole: no prefill and decode engine that fit had room",
    "kv_layout_mismatch": "whole: no prefill engine's KV fitted a decode engine",
    "pair_rests": "whole: the best pair had just failed to hand over",
    "cannot": "whole: a field of it, or its API, kept it so",
}
POOL_COLUMNS = ("pool", "role", "engines", "prefill tokens/s", "learned from", "decode tokens/s", "at once", "from")
OF_POOLS = ("from", "learned from", "at once")
"""What a narrow screen does without, the least first."""


def only_of(pool: str | None, found: SplitAdvice) -> SplitAdvice:
    """The model of `pool`, or all. Raises: UnknownNameError; OperatorError where no worker answered."""
    if not found.workers:
        raise OperatorError("no gateway worker answered", hint="See `headrace status` and `headrace logs`.")
    if pool is None:
        return found
    pools = [each.pool for one in found.models for each in one.load.pools]
    if pool not in pools:
        message = f'there is no pool "{pool[:128]}" that generates'
        raise UnknownNameError(message, hint=did_you_mean(pool, pools))
    mine = tuple(one for one in found.models if any(each.pool == pool for each in one.load.pools))
    return SplitAdvice(workers=found.workers, models=mine)


def advice_view(found: SplitAdvice) -> "RenderableType":
    """One part a model."""
    from rich.console import Group

    shown: list[RenderableType] = []
    for one in found.models:
        shown += [*_model_parts(one), ""]
    return Group(*shown[:-1]) if shown else "no model with pools that generate is declared"


def _model_parts(found: ModelAdvice) -> "list[RenderableType]":
    from rich.text import Text

    load = found.load
    pools = ", ".join(pace.pool for pace in load.pools)
    seen = f"{load.totals.requests} requests in the last {_span(load.window_s)}"
    parts: list[RenderableType] = [Text(f"{load.model} ({pools}): {seen}"), Text(f"splitting pays: {_answer(found)}")]
    if not load.totals.requests:
        return parts
    parts += ["", table(("measured", "mean"), _figures(found)), ""]
    rows = [_pool_row(pace) for pace in load.pools]
    parts.append(table(POOL_COLUMNS, rows, expendable=OF_POOLS))
    decided = sum(load.totals.decisions.values())
    if decided:
        ordered = sorted(load.totals.decisions.items(), key=lambda item: -item[1])
        reasons = [(REASONS.get(name, name), count, f"{count / decided:.0%}") for name, count in ordered]
        parts += ["", table(("requests were", "requests", "share"), reasons)]
    if load.totals.fallbacks:
        ordered = sorted(load.totals.fallbacks.items(), key=lambda item: -item[1])
        parts += ["", table(("hand-overs fell back for", "requests"), ordered)]
    parts += ["", *_listed("what to change", found.changes or ("nothing that these figures ask for",))]
    return [*parts, *_listed(UNMEASURED, found.not_measured)]


def _listed(title: str, lines: tuple[str, ...]) -> "list[RenderableType]":
    """Lines with a dash, whose further lines are indented."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not lines:
        return []
    grid = Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row("-", Text(line))
    return [Text(f"{title}:"), Padding(grid, (0, 0, 0, 2))]


def _answer(found: ModelAdvice) -> str:
    word = {True: "yes", False: "no", None: UNMEASURED}[found.pays]
    return f"{word}; {found.verdict}"


def _figures(found: ModelAdvice) -> list[tuple[object, ...]]:
    load = found.load
    rows: list[tuple[object, ...]] = [
        ("requests per s", f"{load.requests_per_s:.3g}"),
        ("prompt tokens to compute per s", f"{load.uncached_tokens_per_s:,.0f}"),
    ]
    if found.has_handover:
        rows.append(("of these, handed over per s", f"{load.handed_tokens_per_s:,.0f}"))
    rows.append(("output tokens per s", f"{load.output_tokens_per_s:,.0f}"))
    if not found.has_handover:
        return [*rows, ("others' waiting for one prompt s", _number(found.interference_s))]
    return [
        *rows,
        ("requests that were split", _share(found.split_ratio)),
        ("predicted gain of a split one s", _number(found.gain_s)),
        *_stages(load),
        ("transfer MB per s", _number(found.transfer_bytes_per_s, scale=1e6)),
        ("hand-overs that fell back", _share(found.fallback_ratio)),
        ("prefill and decode work in engines", _work(found.present)),
        ("prefill:decode engines now", _ratio(found.present)),
        ("prefill:decode engines wanted", _ratio(found.wanted)),
    ]


def _stages(load: ModelLoad) -> list[tuple[object, ...]]:
    """What the first token of a split request waits for."""
    counts, times = load.totals.stages, load.totals.stage_s
    return [
        (f"{name} s", _number(times.get(stage, 0.0) / counts[stage] if counts.get(stage) else None))
        for stage, name in STAGES.items()
    ]


def _ratio(found: Ratio | None) -> str:
    if found is None:
        return UNMEASURED
    return f"{found.prefill}:{found.decode} (busier side {found.utilization_ratio:.1%} busy)"


def _work(found: Ratio | None) -> str:
    return UNMEASURED if found is None else f"{found.prefill_busy:.3g} and {found.decode_busy:.3g}"


def _pool_row(pace: PoolPace) -> tuple[object, ...]:
    at = None if pace.at_sequences is None else str(pace.at_sequences)
    of = "" if at is None or pace.places is None else f" of {pace.places}"
    is_giver = pace.role == "prefill"
    return (
        pace.pool,
        pace.role,
        pace.engines if pace.engines == pace.usable_engines else f"{pace.engines} ({pace.usable_engines} ready)",
        UNMEASURED if pace.prefill_tokens_per_s is None else f"{pace.prefill_tokens_per_s:,.0f}",
        _source(pace.prefill_from, pace.prompts, "first tokens"),
        "-" if is_giver else UNMEASURED if pace.decode_tokens_per_s is None else f"{pace.decode_tokens_per_s:,.0f}",
        "-" if is_giver or at is None else at + of,
        "-" if is_giver else _source(pace.decode_from, pace.answers, "answers"),
    )


def _source(name: str, points: int, counted: str) -> str | None:
    return f"{points} {counted}" if name == counted else name or None


def _number(value: float | None, *, scale: float = 1.0) -> str:
    return UNMEASURED if value is None else f"{value / scale:,.3g}" if value < 1000 * scale else f"{value / scale:,.0f}"


def _share(ratio: float | None) -> str:
    return UNMEASURED if ratio is None else f"{ratio:.0%}"


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
