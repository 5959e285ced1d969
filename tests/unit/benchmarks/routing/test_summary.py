"""What runs say, summed up."""

import pytest
from benchmarks.routing.client import Sample
from benchmarks.routing.summary import RunFigures, interval, sum_up, table, verdicts


def figures(p99_s: float, goodput: float) -> RunFigures:
    return RunFigures(
        requests=10, failed=0, late=0, ttft_p50_s=0.1, ttft_p99_s=p99_s, tpot_p99_s=0.02, hit_ratio=0.3,
        attainment_ratio=0.9, goodput_per_s=goodput,
    )  # fmt: skip


def test_goodput_counts_what_met_both_objectives_of_all_that_was_offered() -> None:
    """A failed request and a late one are not good; the share is over all four, in simulated time."""
    good = Sample(at_s=0.0, ttft_s=0.5, e2e_s=1.5, output_tokens=11, input_tokens=100, cached_tokens=50)
    late = Sample(at_s=1.0, ttft_s=3.0, e2e_s=4.0, output_tokens=11, input_tokens=100)
    slow = Sample(at_s=1.0, ttft_s=0.5, e2e_s=9.0, output_tokens=11, input_tokens=100)
    broken = Sample(at_s=1.0, failure="reset")
    found = sum_up([good, late, slow, broken], time_scale=1.0, ttft_slo_s=1.0, tpot_slo_s=0.2)
    assert (found.failed, found.attainment_ratio) == (1, 0.25)
    assert found.hit_ratio == pytest.approx(50 / 300)
    assert found.goodput_per_s == pytest.approx(1 / 10.0)
    assert sum_up([good], time_scale=2.0, ttft_slo_s=0.9, tpot_slo_s=9.0).attainment_ratio == 0.0


def test_ahead_means_beyond_the_interval() -> None:
    """A difference within chance is called none; one seed is called one run."""
    ours, theirs = (
        [figures(1.0, 5.0), figures(1.1, 5.0), figures(0.9, 5.2)],
        [figures(2.0, 5.1), figures(2.1, 5.0), figures(2.0, 5.1)],
    )
    (line,) = verdicts({("headrace", 0.7): ours, ("x", 0.7): theirs}, ["headrace", "x"])
    assert "TTFT p99 ahead" in line
    assert "goodput no difference beyond chance" in line
    (line,) = verdicts({("headrace", 0.7): ours[:1], ("x", 0.7): theirs[:1]}, ["headrace", "x"])
    assert "ahead in one run" in line
    assert interval([1.0]).half is None


def test_the_table_has_a_row_for_each_router_and_load() -> None:
    """Rows come by load, then in the order of the routers; means carry their interval."""
    text = table({("b", 0.95): [figures(1.0, 5.0)], ("a", 0.7): [figures(1.0, 5.0), figures(2.0, 5.0)]}, ["a", "b"])
    rows = text.splitlines()[2:]
    assert [row.split(" | ")[:2] for row in rows] == [["| 70%", "a"], ["| 95%", "b"]]
    assert "±" in rows[0]
    assert "±" not in rows[1]
