"""From samples to numbers: medians and spreads per target, and ratios against the best Rust peer of the same round."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.sample import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One quantity over the rounds."""

    median: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One quantity of a sample that is compared; lower is better for all."""

    name: str
    field: str
    scenario: str
    unit: str
    is_added: bool = False
    """Report the difference to no proxy, of the same round."""
    goal: float | None = None
    """Largest wanted ratio of headrace to the best Rust peer."""


MEASURES = (
    Measure(name="CPU per request", field="cpu_us_per_request", scenario="small", unit="us", goal=0.6),
    Measure(
        name="CPU per request, 32 KB prompt", field="cpu_us_per_request", scenario="prompt-32k", unit="us", goal=0.6
    ),
    Measure(
        name="CPU per request, 256 KB prompt", field="cpu_us_per_request", scenario="prompt-256k", unit="us", goal=0.6
    ),
    Measure(
        name="CPU per request, four backends", field="cpu_us_per_request", scenario="four-backends", unit="us", goal=0.6
    ),
    Measure(
        name="CPU per 1,000 chunks, 500 streams",
        field="cpu_ms_per_1000_chunks",
        scenario="streams-500",
        unit="ms",
        goal=0.8,
    ),
    Measure(
        name="CPU per 1,000 chunks, 1,000 streams", field="cpu_ms_per_1000_chunks", scenario="streams-1000", unit="ms"
    ),
    Measure(
        name="added TTFT p50, 500 streams",
        field="ttft_p50_ms",
        scenario="streams-500",
        unit="ms",
        is_added=True,
        goal=1.0,
    ),
    Measure(
        name="added TTFT p99, 500 streams",
        field="ttft_p99_ms",
        scenario="streams-500",
        unit="ms",
        is_added=True,
        goal=1.0,
    ),
    Measure(name="added latency p50, 32 connections", field="p50_ms", scenario="small", unit="ms", is_added=True),
    Measure(name="added latency p99, 32 connections", field="p99_ms", scenario="small", unit="ms", is_added=True),
)
"""What the report compares, and the goals of the project."""


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(median=median(values), low=min(values), high=max(values), samples=len(values))


def values_by_round(samples: Sequence[Sample], measure: Measure, target: str) -> dict[int, float]:
    """The quantity of `target` in each round; quiet samples only, where there are any."""
    mine = {s.round: s for s in samples if s.scenario == measure.scenario and s.target == target}
    kept = {number: s for number, s in mine.items() if not s.is_noisy} or mine
    direct = {s.round: s for s in samples if s.scenario == measure.scenario and s.target == "direct"}
    values: dict[int, float] = {}
    for number, sample in kept.items():
        value = getattr(sample, measure.field)
        if measure.is_added:
            floor = getattr(direct[number], measure.field) if number in direct else None
            value = None if value is None or floor is None else value - floor
        if value is not None:
            values[number] = value
    return values


def best_peer(samples: Sequence[Sample], measure: Measure, peers: Sequence[str]) -> tuple[str, Spread] | None:
    """The Rust peer with the lowest median."""
    spreads = {peer: spread(list(values_by_round(samples, measure, peer).values())) for peer in peers}
    found = [(peer, value) for peer, value in spreads.items() if value is not None]
    return min(found, key=lambda pair: pair[1].median) if found else None


def ratio_to_best(samples: Sequence[Sample], measure: Measure, target: str, peers: Sequence[str]) -> Spread | None:
    """`target` divided by the best peer: of the medians, with the lowest and highest ratio of a single round."""
    best = best_peer(samples, measure, peers)
    mine = values_by_round(samples, measure, target)
    mine_spread = spread(list(mine.values()))
    if best is None or mine_spread is None or best[1].median <= 0:
        return None
    theirs = values_by_round(samples, measure, best[0])
    ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number, 0) > 0]
    middle = mine_spread.median / best[1].median
    return Spread(median=middle, low=min([middle, *ratios]), high=max([middle, *ratios]), samples=len(ratios))
