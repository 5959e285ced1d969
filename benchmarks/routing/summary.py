"""What a run says, over seeds: medians, tails, hits and goodput, with confidence intervals, as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from benchmarks.routing.client import LATE_S, Sample

T_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Student's t, two-sided 95 %, by number of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """One router at one load with one seed. Times in simulated seconds, observed by the client."""

    requests: int
    failed: int
    late: int
    """Requests that the client itself sent more than LATE_S late: it was the bottleneck."""
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    hit_ratio: float
    attainment_ratio: float
    """Requests within both objectives, of all that were offered."""
    goodput_per_s: float


def sum_up(samples: Sequence[Sample], *, time_scale: float, ttft_slo_s: float, tpot_slo_s: float) -> RunFigures:
    """Failed requests count as offered and not met; their times are unknown and are left out of quantiles."""
    answered = [sample for sample in samples if sample.failure is None and sample.ttft_s is not None]
    ttfts = sorted((sample.ttft_s or 0.0) * time_scale for sample in answered)
    tpots = sorted(sample.tpot_s * time_scale for sample in answered if sample.tpot_s is not None)
    good = sum(
        1
        for sample in answered
        if (sample.ttft_s or 0.0) * time_scale <= ttft_slo_s and (sample.tpot_s or 0.0) * time_scale <= tpot_slo_s
    )
    ends_s = max((sample.at_s + (sample.e2e_s or 0.0) for sample in answered), default=1.0)
    return RunFigures(
        requests=len(samples),
        failed=len(samples) - len(answered),
        late=sum(1 for sample in samples if sample.late_s > LATE_S),
        ttft_p50_s=_quantile(ttfts, 0.5),
        ttft_p99_s=_quantile(ttfts, 0.99),
        tpot_p99_s=_quantile(tpots, 0.99),
        hit_ratio=sum(sample.cached_tokens for sample in answered)
        / max(1, sum(sample.input_tokens for sample in answered)),
        attainment_ratio=good / max(1, len(samples)),
        goodput_per_s=good / (ends_s * time_scale),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds and half the width of its 95 % confidence interval; None with one seed."""

    mean: float
    half: float | None

    def shown(self, digits: int, scale: float = 1.0) -> str:
        text = f"{self.mean * scale:.{digits}f}"
        return text if self.half is None else f"{text} ±{self.half * scale:.{digits}f}"


def interval(values: Sequence[float]) -> Interval:
    count = len(values)
    if count < 2:
        return Interval(values[0], None)
    return Interval(mean(values), T_95.get(count, 2.0) * stdev(values) / sqrt(count))


def table(found: Mapping[tuple[str, float], Sequence[RunFigures]], routers: Sequence[str]) -> str:
    """Markdown, one block of rows a load, the routers in their order."""
    lines = [
        "| load | router | TTFT p50 s | TTFT p99 s | TPOT p99 ms | prefix hits | within SLO | goodput /s | failed |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for load in sorted({load for _, load in found}):
        for router in routers:
            runs = found.get((router, load))
            if not runs:
                continue
            cells = (
                interval([run.ttft_p50_s for run in runs]).shown(3),
                interval([run.ttft_p99_s for run in runs]).shown(2),
                interval([run.tpot_p99_s for run in runs]).shown(1, 1000.0),
                interval([run.hit_ratio for run in runs]).shown(1, 100.0) + " %",
                interval([run.attainment_ratio for run in runs]).shown(1, 100.0) + " %",
                interval([run.goodput_per_s for run in runs]).shown(2),
                str(sum(run.failed for run in runs)),
            )
            lines.append(f"| {load:.0%} | {router} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(found: Mapping[tuple[str, float], Sequence[RunFigures]], routers: Sequence[str]) -> list[str]:
    """Whether headrace is ahead of each other router beyond the confidence interval of the paired differences."""
    lines: list[str] = []
    for load in sorted({load for _, load in found}):
        ours = found.get(("headrace", load))
        for router in routers:
            theirs = found.get((router, load))
            if router == "headrace" or not ours or not theirs:
                continue
            pairs = list(zip(ours, theirs, strict=False))
            p99 = interval([other.ttft_p99_s - own.ttft_p99_s for own, other in pairs])
            goodput = interval([own.goodput_per_s - other.goodput_per_s for own, other in pairs])
            lines.append(
                f"{load:.0%} load against {router}: TTFT p99 {_ahead(p99)} ({p99.shown(2)} s sooner), "
                f"goodput {_ahead(goodput)} ({goodput.shown(3)} /s more)"
            )
    return lines


def _ahead(found: Interval) -> str:
    if found.half is None:
        return "ahead in one run" if found.mean > 0 else "not ahead in one run"
    if found.mean > found.half:
        return "ahead"
    return "behind" if found.mean < -found.half else "no difference beyond chance"
