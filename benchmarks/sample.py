"""One measurement: one load on one target in one round, as plain values that travel to JSON and back."""

from dataclasses import asdict, dataclass
from typing import Any

NOISY_CORES = 0.10
"""A sample with more than this much foreign work, in cores, is marked: its latencies say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Units in the names; None is not measured."""

    target: str
    scenario: str
    round: int
    duration_s: float
    requests: int
    failed: int
    """Not answered as they should be; broken or incomplete streams are among them."""
    chunks: int
    cpu_s: float
    """Of all processes of the target."""
    requests_per_s: float
    cpu_us_per_request: float | None
    cpu_ms_per_1000_chunks: float | None
    p50_ms: float | None
    p99_ms: float | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    gap_p99_ms: float | None
    rss_peak_bytes: int
    """Sum over the target's processes, sampled during the load."""
    processes: int
    foreign_cores: float
    """CPU of everything that does not belong to the benchmark, per second."""
    neighbour_cores: float
    """CPU of the other targets, which idle beside this one."""
    load_cores: float
    """CPU of mock engine, load client and harness, on the core they share."""
    first_failure: str = ""

    @property
    def is_noisy(self) -> bool:
        return self.foreign_cores + self.neighbour_cores > NOISY_CORES

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_noisy": self.is_noisy}


def make_sample(
    *,
    target: str,
    scenario: str,
    number: int,
    told: dict[str, Any],
    cpu_s: float,
    is_proxied: bool,
    rss_peak_bytes: int,
    processes: int,
    foreign_cores: float,
    neighbour_cores: float,
    load_cores: float,
) -> Sample:
    """Combine what the load client told with what was read from /proc."""
    ended, chunks = told["ok"] + told["failed"], told["chunks"]

    def quantile(name: str, field: str) -> float | None:
        return None if told[name] is None else told[name][field]

    return Sample(
        target=target,
        scenario=scenario,
        round=number,
        duration_s=told["duration_s"],
        requests=ended,
        failed=told["failed"] + told["unfinished"],
        chunks=chunks,
        cpu_s=cpu_s,
        requests_per_s=ended / told["duration_s"],
        cpu_us_per_request=cpu_s / ended * 1e6 if is_proxied and ended and not chunks else None,
        cpu_ms_per_1000_chunks=cpu_s / chunks * 1e6 if is_proxied and chunks else None,
        p50_ms=quantile("latency", "p50_ms"),
        p99_ms=quantile("latency", "p99_ms"),
        ttft_p50_ms=quantile("ttft", "p50_ms"),
        ttft_p99_ms=quantile("ttft", "p99_ms"),
        gap_p99_ms=quantile("gap", "p99_ms"),
        rss_peak_bytes=rss_peak_bytes,
        processes=processes,
        foreign_cores=foreign_cores,
        neighbour_cores=neighbour_cores,
        load_cores=load_cores,
        first_failure=told["first_failure"],
    )
