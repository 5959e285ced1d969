"""The picture of the results."""

from dataclasses import replace
from pathlib import Path

from benchmarks.plot import draw
from benchmarks.report import Run
from benchmarks.sample import Sample


def test_draws_a_picture_even_of_a_run_with_gaps(tmp_path: Path, run: Run, headrace_sample: Sample) -> None:
    """A target that lacks a scenario leaves a gap, not an error."""
    streams = replace(headrace_sample, scenario="streams-500", cpu_us_per_request=None, cpu_ms_per_1000_chunks=17.0)
    draw(replace(run, samples=[*run.samples, streams]), tmp_path / "results" / "results.png")
    assert (tmp_path / "results" / "results.png").read_bytes().startswith(b"\x89PNG")
