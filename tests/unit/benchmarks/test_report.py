"""The report: every number comes from samples, and goes between markers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.problem import BenchmarkError
from benchmarks.report import BEGIN, END, Run, publish, render
from benchmarks.sample import Sample


def test_a_goal_that_is_missed_is_said_so(
    compose_run: Callable[..., Run], make_target_sample: Callable[..., Sample]
) -> None:
    """The table of goals tells met from missed."""
    met = render(compose_run(make_target_sample("headrace", 0.03), make_target_sample("smg", 0.1)))
    assert "| CPU per request | 30 us | 100 us (smg) | 0.30 | at most 0.6 | yes |" in met
    missed = render(compose_run(make_target_sample("headrace", 0.09), make_target_sample("smg", 0.1)))
    assert "| 0.90 | at most 0.6 | **no** |" in missed


def test_peers_that_log_warnings_only_are_a_ratio_of_their_own(
    compose_run: Callable[..., Run], make_target_sample: Callable[..., Sample]
) -> None:
    """headrace logs every request: it is judged beside peers that do, and beside those that do less; both are shown."""
    both = [make_target_sample("smg", 0.1), make_target_sample("smg-quiet", 0.04)]
    text = render(compose_run(make_target_sample("headrace", 0.03), *both))
    logging = "| CPU per request | 30 us | 100 us (smg) | 0.30 | at most 0.6 | yes "
    quiet = "| 40 us (smg-quiet) | 0.75 | **no** "
    assert f"{logging}{quiet}| 100 us (smg) | 0.30 |" in text
    assert "412 bytes a request went to its files" in text


def test_what_was_left_out_or_failed_is_said(
    compose_run: Callable[..., Run], make_target_sample: Callable[..., Sample]
) -> None:
    """Absent targets come with their reason, failures with their count and first text."""
    text = render(compose_run(make_target_sample("direct", 0.0), make_target_sample("smg", 0.1, failed=3)))
    assert "nginx was left out: not on PATH" in text
    assert "3 of 1,000" in text
    assert "first failure of smg: plain: status 500" in text
    assert "a wrong key was refused" in text


def test_the_report_states_machine_and_noise(
    compose_run: Callable[..., Run], make_target_sample: Callable[..., Sample]
) -> None:
    """Whoever reads the numbers sees where and beside what they were measured."""
    text = render(compose_run(make_target_sample("smg", 0.1)))
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
