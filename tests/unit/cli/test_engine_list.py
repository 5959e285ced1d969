"""headrace engine list."""

import json
from pathlib import Path

import pytest

from headrace.engines.registry import DRIVERS


def test_every_engine_is_listed(run) -> None:
    """Each with the version whose facts were read."""
    ran = run("engine", "list", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["schema"] == "headrace/engine-list/v1"
    rows = {row["engine"]: row for row in told["data"]}
    assert set(rows) == {kind.value for kind in DRIVERS}
    assert rows["vllm"]["read_version"] == "0.33.0"
    assert rows["tensorrt-llm"]["metrics_path"] == "/prometheus/metrics"
    assert rows["openai"]["is_launched"] is False


def test_a_program_on_path_is_found(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is installed here is shown with its path."""
    program = tmp_path / "trtllm-serve"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    rows = {row["engine"]: row for row in json.loads(run("engine", "list", "--json").out)["data"]}
    assert rows["tensorrt-llm"]["program"] == str(program)
    assert rows["vllm"]["program"] is None


@pytest.mark.parametrize("columns", ["40", "160"])
def test_it_fits_the_screen(run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow screens get lines."""
    monkeypatch.setenv("COLUMNS", columns)
    ran = run("engine", "list")
    assert "sglang" in ran.out
    assert all(len(line) <= int(columns) for line in ran.out.splitlines())
