"""Writes the results as Markdown, and between the markers of README.md; no number is ever typed by hand."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import Machine
from benchmarks.problem import BenchmarkError
from benchmarks.sample import NOISY_CORES, Sample
from benchmarks.scenarios import SCENARIOS
from benchmarks.summary import MEASURES, Measure, Spread, best_peer, ratio_to_best, spread, values_by_round

BEGIN = "<!-- results: begin (written by `python -m benchmarks --publish`) -->"
END = "<!-- results: end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All that a report says."""

    at: str
    command: str
    machine: Machine
    rounds: int
    is_quick: bool
    versions: dict[str, str]
    """By target, in order."""
    titles: dict[str, str]
    set_ups: dict[str, str]
    rust_peers: tuple[str, ...]
    key_checks: dict[str, bool]
    written_bytes: dict[str, float | None]
    """What one request leaves in the target's files."""
    skipped: dict[str, str]
    samples: list[Sample]

    def as_json(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("machine", "samples")}
        samples = [sample.as_json() for sample in self.samples]
        return json.dumps(
            {"schema": "headrace.benchmark/1", **fields, "machine": asdict(self.machine), "samples": samples}, indent=1
        )

    @property
    def measured(self) -> list[str]:
        return [kind for kind in self.versions if any(sample.target == kind for sample in self.samples)]

    @property
    def recording_peers(self) -> list[str]:
        """Rust peers that log requests, as headrace does: a request was seen to leave something in their files."""
        return [kind for kind in self.rust_peers if (self.written_bytes.get(kind) or 0.0) >= 1.0]

    @property
    def noisy_ratio(self) -> float:
        return sum(sample.is_noisy for sample in self.samples) / max(1, len(self.samples))


def now_text() -> str:
    return datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def render(run: Run) -> str:
    """The whole report."""
    parts = [_conditions(run), _goals(run), _costs(run), _latencies(run), _sizes(run), _notes(run)]
    return "\n\n".join(part for part in parts if part) + "\n"


def publish(readme: Path, text: str) -> None:
    """Replace what is between the markers."""
    page = readme.read_text()
    if BEGIN not in page or END not in page:
        raise BenchmarkError(f"{readme.name} lacks the markers between which results go")
    head, tail = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    readme.write_text(f"{head}\n\n{text.strip()}\n\n{tail}")


def _conditions(run: Run) -> str:
    machine = run.machine
    foreign = spread([sample.foreign_cores for sample in run.samples])
    pinned = (
        "program under test pinned to one core, mock engine and load client to another"
        if machine.proxy_core is not None
        else "nothing pinned"
    )
    noise = (
        f"foreign work on the machine {foreign.median:.2f} cores in the median ({foreign.low:.2f} to "
        f"{foreign.high:.2f}); {sum(s.is_noisy for s in run.samples)} of {len(run.samples)} samples noisy "
        f"(over {NOISY_CORES:.2f} cores)"
        if foreign
        else "no samples"
    )
    return (
        f"{run.at}, `{run.command}`: {run.rounds} interleaved round{'s' if run.rounds != 1 else ''}"
        f"{' of the quick kind' if run.is_quick else ''}. {machine.processor}, {machine.cores} cores, "
        f"{machine.memory_gib} GiB, Linux {machine.kernel}, Python {machine.python} ({machine.python_build}); "
        f"{pinned}; {noise}. "
        "Medians, in brackets lowest and highest; noisy samples are left out where a quiet one exists."
    )


def _goals(run: Run) -> str:
    """headrace beside the best peer that logs requests as it does, and beside the best of all, which may log nothing.

    Both ratios are judged; the best that logs requests and checks keys, which is nearest to headrace, comes last.
    """
    if "headrace" not in run.measured:
        return ""
    recording = run.recording_peers
    checking = [peer for peer in recording if run.key_checks.get(peer)]
    recorded = ["best Rust peer that logs requests", "ratio", "goal", "met"]
    columns = ["", "headrace", *recorded, "best of all Rust peers", "ratio", "met"]
    columns += ["best that logs requests and checks keys", "ratio"]
    lines = ["| " + " | ".join(columns) + " |", "| --- |" + " --- |" * (len(columns) - 1)]
    for measure in MEASURES:
        mine = spread(list(values_by_round(run.samples, measure, "headrace").values()))
        if mine is None or best_peer(run.samples, measure, run.rust_peers) is None:
            continue
        goal = "-" if measure.goal is None else f"at most {measure.goal:g}"
        lines.append(
            f"| {measure.name} | {_number(mine.median)} {measure.unit} | {_peer(run, measure, recording)} | {goal} | "
            f"{_met(run, measure, mine, recording)} | {_peer(run, measure, run.rust_peers)} | "
            f"{_met(run, measure, mine, run.rust_peers)} | {_peer(run, measure, checking)} |"
        )
    return "\n".join(lines)


def _met(run: Run, measure: Measure, mine: Spread, peers: Sequence[str]) -> str:
    best = best_peer(run.samples, measure, peers)
    if measure.goal is None or best is None:
        return "-"
    return "yes" if mine.median <= best[1].median * measure.goal else "**no**"


def _peer(run: Run, measure: Measure, peers: Sequence[str]) -> str:
    """Two cells: the best of `peers`, and headrace's ratio to it."""
    best = best_peer(run.samples, measure, peers)
    if best is None:
        return "- | -"
    ratio = ratio_to_best(run.samples, measure, "headrace", peers)
    return f"{_number(best[1].median)} {measure.unit} ({best[0]}) | {_ratio(ratio)}"


def _table(run: Run, measures: Sequence[Measure], *, with_ratio: bool) -> str:
    shown = [m for m in measures if any(values_by_round(run.samples, m, kind) for kind in run.measured)]
    if not shown:
        return ""
    lines = ["| | " + " | ".join(f"{m.name}, {m.unit}" for m in shown) + " |", "| --- |" + " --- |" * len(shown)]
    for kind in run.measured:
        cells: list[str] = []
        for measure in shown:
            value = spread(list(values_by_round(run.samples, measure, kind).values()))
            cell = "-" if value is None or kind == "direct" else _cell(value)
            ratio = (
                ratio_to_best(run.samples, measure, kind, run.recording_peers) if with_ratio and cell != "-" else None
            )
            cells.append(cell + (f", x{ratio.median:.2f}" if ratio else ""))
        lines.append(f"| {_name(run, kind)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _costs(run: Run) -> str:
    table = _table(run, [m for m in MEASURES if not m.is_added], with_ratio=True)
    explained = "CPU of all processes of the program; `x` is the ratio to the best Rust peer that logs requests."
    return f"{explained}\n\n{table}" if table else ""


def _latencies(run: Run) -> str:
    table = _table(run, [m for m in MEASURES if m.is_added], with_ratio=False)
    return f"Latency added to that of no proxy in the same round.\n\n{table}" if table else ""


def _sizes(run: Run) -> str:
    shown = [s for s in SCENARIOS if any(sample.scenario == s.kind for sample in run.samples)]
    lines = [
        "Requests per second (streams: streams completed per second), and the largest sum of resident memory.",
        "",
        "| | " + " | ".join(s.title for s in shown) + " | RSS peak, MiB | failed |",
        "| --- |" + " --- |" * (len(shown) + 2),
    ]
    for kind in run.measured:
        mine = [sample for sample in run.samples if sample.target == kind]
        cells = [_rate(mine, scenario.kind) for scenario in shown]
        rss = "-" if kind == "direct" else f"{max(s.rss_peak_bytes for s in mine) / 1048576:.0f}"
        failed = f"{sum(s.failed for s in mine):,} of {sum(s.requests for s in mine):,}"
        lines.append(f"| {_name(run, kind)} | " + " | ".join(cells) + f" | {rss} | {failed} |")
    return "\n".join(lines)


def _rate(samples: Sequence[Sample], scenario: str) -> str:
    value = spread([sample.requests_per_s for sample in samples if sample.scenario == scenario])
    return "-" if value is None else f"{value.median:,.0f}"


def _notes(run: Run) -> str:
    lines = [
        f"- {_name(run, kind)}: {run.set_ups[kind]}" + _key_check(run.key_checks, kind) + _written(run, kind)
        for kind in run.measured
    ]
    lines += [f"- {run.titles.get(kind, kind)} was left out: {reason}" for kind, reason in run.skipped.items()]
    failures = {s.target: s.first_failure for s in run.samples if s.failed and s.first_failure}
    lines += [f"- first failure of {run.titles[kind]}: {text[:200]}" for kind, text in failures.items()]
    return "\n".join(lines)


def _key_check(key_checks: Mapping[str, bool], kind: str) -> str:
    if kind not in key_checks or kind in ("direct", "nginx"):
        return "."
    return "; a wrong key was refused." if key_checks[kind] else "; a wrong key was let through."


def _written(run: Run, kind: str) -> str:
    written = run.written_bytes.get(kind)
    return "" if written is None else f" {written:,.0f} bytes a request went to its files."


def _name(run: Run, kind: str) -> str:
    version = run.versions[kind]
    return run.titles[kind] if version == "-" else f"{run.titles[kind]} {version}"


def _cell(value: Spread) -> str:
    middle = _number(value.median)
    return f"{middle} ({_number(value.low)} to {_number(value.high)})" if value.samples > 1 else middle


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _ratio(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.median:.2f} ({value.low:.2f} to {value.high:.2f})" if value.samples > 1 else f"{value.median:.2f}"
