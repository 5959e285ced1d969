"""Samples and runs made up for the tests of report and plot."""

from collections.abc import Callable

import pytest
from benchmarks.machine import Machine
from benchmarks.report import Run
from benchmarks.sample import Sample, make_sample

MACHINE = Machine(
    processor="Some CPU",
    cores=2,
    memory_gib=8,
    kernel="6.1",
    python="3.11.7",
    python_build="PGO",
    proxy_core=0,
    load_core=1,
)


def make(target: str, cpu_s: float, *, failed: int = 0) -> Sample:
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


def compose(*samples: Sample) -> Run:
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
        rust_peers=("smg", "smg-quiet"),
        key_checks={"smg": True},
        written_bytes={"smg": 412.0, "smg-quiet": 0.0},
        skipped={"nginx": "not on PATH"},
        samples=list(samples),
    )


@pytest.fixture
def make_target_sample() -> Callable[..., Sample]:
    """Make a sample of one target from its CPU time for 1,000 requests."""
    return make


@pytest.fixture
def compose_run() -> Callable[..., Run]:
    """Make a run of samples."""
    return compose


@pytest.fixture
def headrace_sample() -> Sample:
    return make("headrace", 0.03)


@pytest.fixture
def run(headrace_sample: Sample) -> Run:
    return compose(headrace_sample, make("smg", 0.1))
