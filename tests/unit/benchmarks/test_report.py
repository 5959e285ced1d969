"""The report: every number comes from samples, and goes between markers."""

from pathlib import Path

import pytest
from benchmarks.machine import Machine
from benchmarks.problem import BenchmarkError
from benchmarks.report import BEGIN, END, Run, publish, render
from benchmarks.sample import Sample, make_sample

MACHINE = Machine(processor="Some CPU", cores=2, memory_gib=8, kernel="6.1", python="3.11.7", proxy_core=0, load_core=1)


def sample(target: str, cpu_s: float, *, failed: int = 0) -> Sample:
    told = {
        "ok": 1000 - failed,
        "failed": failed,
        "unfinished": 0,
        "chunks": 0,
        "duration_s": 2.0,
        "latency": {"p50_ms": 1.5, "p99_ms": 4.0},
        "ttft": None,
        "gap": None,
        "first_failure": "plain: status 500" if failed else "",
    }
    return make_sample(
        target=target,
        scenario="small",
        number=0,
        told=told,
        cpu_s=cpu_s,
        is_proxied=target != "direct",
        rss_peak_bytes=50 * 1048576,
        processes=3,
        foreign_cores=0.02,
        neighbour_cores=0.01,
        load_cores=0.8,
    )


def run(*samples: Sample) -> Run:
    kinds = [sample.target for sample in samples]
    return Run(
        at="2026-11-30 12:00 UTC",
        command="python -m benchmarks",
        machine=MACHINE,
        rounds=1,
        is_quick=True,
        versions=dict.fromkeys(kinds, "1.0"),
        titles={kind: kind for kind in kinds},
        set_ups=dict.fromkeys(kinds, "set up so"),
        rust_peers=("smg",),
        key_checks={"smg": True},
        skipped={"nginx": "not on PATH"},
        samples=list(samples),
    )


def test_a_goal_that_is_missed_is_said_so() -> None:
    """The table of goals tells met from missed."""
    met = render(run(sample("headrace", 0.03), sample("smg", 0.1)))
    assert "| CPU per request | 30 us | 100 us (smg) | 0.30 | at most 0.6 | yes |" in met
    missed = render(run(sample("headrace", 0.09), sample("smg", 0.1)))
    assert "| 0.90 | at most 0.6 | **no** |" in missed


def test_what_was_left_out_or_failed_is_said() -> None:
    """Absent targets come with their reason, failures with their count and first text."""
    text = render(run(sample("direct", 0.0), sample("smg", 0.1, failed=3)))
    assert "nginx was left out: not on PATH" in text
    assert "3 of 1,000" in text
    assert "first failure of smg: plain: status 500" in text
    assert "a wrong key was refused" in text


def test_the_report_states_machine_and_noise() -> None:
    """Whoever reads the numbers sees where and beside what they were measured."""
    text = render(run(sample("smg", 0.1)))
    assert "Some CPU, 2 cores, 8 GiB, Linux 6.1" in text
    assert "0 of 1 samples noisy" in text


def test_publishing_replaces_what_is_between_the_markers(tmp_path: Path) -> None:
    """The text around the results is untouched."""
    page = tmp_path / "README.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    publish(page, "new\n")
    assert page.read_text() == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    page.write_text("no markers")
    with pytest.raises(BenchmarkError, match="markers"):
        publish(page, "new")
