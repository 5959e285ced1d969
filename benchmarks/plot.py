"""Draws the comparison as one PNG: CPU per request, CPU per 1,000 chunks, added TTFT, memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Run
from benchmarks.summary import MEASURES, Measure, Spread, spread, values_by_round

OURS, THEIRS = "#0b7285", "#adb5bd"


def draw(run: Run, path: Path) -> None:
    """Write the picture to `path`. Targets that cannot carry the full load are left to the table."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_name = {measure.name: measure for measure in MEASURES}
    panels = [
        ("CPU per request, 0.6 KB body (us)", by_name["CPU per request"]),
        ("CPU per 1,000 chunks, 500 streams (ms)", by_name["CPU per 1,000 chunks, 500 streams"]),
        ("added TTFT p50, 500 streams (ms)", by_name["added TTFT p50, 500 streams"]),
    ]
    figure: Any = Figure(figsize=(12, 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2).flat
    kinds = [kind for kind in run.measured if kind not in ("direct", "litellm")]
    for axis, (title, measure) in zip(axes, panels, strict=False):
        _bars(axis, title, kinds, [_spread(run, measure, kind) for kind in kinds])
    _bars(axes[3], "memory, all processes, peak by scenario (MiB)", kinds, [_memory(run, kind) for kind in kinds])
    figure.suptitle(
        f"Lower is better. {run.machine.processor}, {run.rounds} round{'s' if run.rounds != 1 else ''}, {run.at}",
        fontsize=10,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _spread(run: Run, measure: Measure, kind: str) -> Spread | None:
    return spread(list(values_by_round(run.samples, measure, kind).values()))


def _memory(run: Run, kind: str) -> Spread | None:
    return spread([sample.rss_peak_bytes / 1048576 for sample in run.samples if sample.target == kind])


def _bars(axis: Any, title: str, kinds: Sequence[str], values: Sequence[Spread | None]) -> None:
    shown = [(kind, value) for kind, value in zip(kinds, values, strict=True) if value is not None]
    for place, (kind, value) in enumerate(reversed(shown)):
        axis.barh(
            place,
            value.median,
            xerr=[[value.median - value.low], [value.high - value.median]],
            color=OURS if kind == "headrace" else THEIRS,
            error_kw={"ecolor": "#495057", "capsize": 3, "linewidth": 1},
        )
        axis.annotate(f" {value.median:.3g}", (max(value.high, 0), place), va="center", fontsize=9)
    axis.set_yticks(range(len(shown)), [kind for kind, _ in reversed(shown)])
    axis.set_title(title, fontsize=10, loc="left")
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.15)
