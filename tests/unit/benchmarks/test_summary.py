"""Medians, spreads and ratios, from samples."""

from dataclasses import replace

import pytest
from benchmarks.sample import Sample
from benchmarks.summary import Measure, best_peer, ratio_to_best, spread, values_by_round

COST = Measure(name="CPU", field="cpu_us_per_request", scenario="small", unit="us")
ADDED = Measure(name="added", field="p50_ms", scenario="small", unit="ms", is_added=True)
SAMPLE = Sample(
    target="headrace",
    scenario="small",
    round=0,
    duration_s=1.0,
    requests=100,
    failed=0,
    chunks=0,
    cpu_s=0.1,
    requests_per_s=100.0,
    cpu_us_per_request=20.0,
    cpu_ms_per_1000_chunks=None,
    p50_ms=3.0,
    p99_ms=4.0,
    ttft_p50_ms=None,
    ttft_p99_ms=None,
    gap_p99_ms=None,
    rss_peak_bytes=0,
    processes=1,
    foreign_cores=0.0,
    neighbour_cores=0.0,
    load_cores=1.0,
)


def test_the_ratio_is_to_the_best_peer() -> None:
    """The peer with the lowest median is the one to beat."""
    samples = [
        SAMPLE,
        replace(SAMPLE, round=1, cpu_us_per_request=24.0),
        *(replace(SAMPLE, target="smg", round=number, cpu_us_per_request=80.0) for number in (0, 1)),
        *(replace(SAMPLE, target="vllm-router", round=number, cpu_us_per_request=44.0) for number in (0, 1)),
    ]
    best = best_peer(samples, COST, ["smg", "vllm-router", "absent"])
    assert best is not None
    assert best[0] == "vllm-router"
    ratio = ratio_to_best(samples, COST, "headrace", ["smg", "vllm-router"])
    assert ratio is not None
    assert ratio.median == pytest.approx(22 / 44)
    assert (ratio.low, ratio.high) == (pytest.approx(20 / 44), pytest.approx(24 / 44))


def test_noisy_samples_count_only_where_there_is_no_quiet_one() -> None:
    """A sample beside foreign work is left out when a quiet one exists."""
    noisy = replace(SAMPLE, round=1, cpu_us_per_request=90.0, foreign_cores=0.5)
    assert values_by_round([SAMPLE, noisy], COST, "headrace") == {0: 20.0}
    assert values_by_round([noisy], COST, "headrace") == {1: 90.0}


def test_added_latency_is_against_no_proxy_in_the_same_round() -> None:
    """What the machine did in one round is taken from that round only."""
    samples = [
        SAMPLE,
        replace(SAMPLE, round=1, p50_ms=9.0),
        replace(SAMPLE, target="direct", p50_ms=1.0),
        replace(SAMPLE, target="direct", round=1, p50_ms=5.0),
    ]
    assert values_by_round(samples, ADDED, "headrace") == {0: 2.0, 1: 4.0}


def test_nothing_measured_is_none() -> None:
    """No samples give no number, never 0."""
    assert spread([]) is None
    assert ratio_to_best([SAMPLE], COST, "headrace", ["smg"]) is None
