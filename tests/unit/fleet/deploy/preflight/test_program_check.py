"""Whether an engine's program is here."""

import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.declaration.model import Declaration
from headrace.fleet.deploy.preflight.core.finding import Finding, Level
from headrace.fleet.deploy.preflight.program_check import check_program
from headrace.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "model").mkdir()
    return Settings(state_dir=tmp_path / "state", cache_dir=tmp_path / "cache")


def found(settings: Settings, engine: str, runtime: dict[str, Any]) -> list[Finding]:
    pool = {"model": "m", "engine": engine, "runtime": {"device": "cpu", **runtime}}
    source = f"file:{settings.state_dir.parent / 'model'}"
    declaration = Declaration.model_validate({"models": {"m": {"source": source}}, "pools": {"p": pool}})
    return list(check_program(declaration, settings, "p"))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_on_path_is_a_failure(
    settings: Settings, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the keys that say where it is."""
    monkeypatch.setenv("PATH", "/nowhere")
    [finding] = found(settings, engine, {})
    assert finding.level is Level.FAIL
    assert "pools.p.runtime.python" in finding.remedy


def test_an_environment_that_is_not_there_or_lacks_the_engine(settings: Settings, tmp_path: Path) -> None:
    """`runtime.python` must exist, and have the engine."""
    [finding] = found(settings, "vllm", {"python": "/nowhere/python"})
    assert "/nowhere/python is not here" in finding.seen
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    [finding] = found(settings, "vllm", {"python": str(python)})
    assert (finding.level, finding.seen) == (Level.FAIL, f"{python} has no module vllm")
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('looked for, not imported')\n")
    [finding] = found(settings, "vllm", {"python": str(python), "env": {"PYTHONPATH": str(tmp_path)}})
    assert finding.level is Level.OK


def test_a_command_of_ones_own_is_looked_for(settings: Settings) -> None:
    """`runtime.command` begins with a program; containers are judged by their own check."""
    [finding] = found(settings, "vllm", {"command": ["/nowhere/start.sh"]})
    assert finding.level is Level.FAIL
    [finding] = found(settings, "vllm", {"command": [sys.executable]})
    assert finding.level is Level.OK
    assert found(settings, "vllm", {"command": ["docker", "run"]}) == []
