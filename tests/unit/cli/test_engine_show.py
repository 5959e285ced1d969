"""headrace engine show."""

import json

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.registry import DRIVERS


@pytest.mark.parametrize("engine", [kind.value for kind in DRIVERS])
def test_everything_that_is_known_is_shown_with_its_source(run, engine: str) -> None:
    """Flags, metrics, behaviour and old names each say where they were read."""
    told = json.loads(run("engine", "show", engine, "--json").out)
    assert told["schema"] == "headrace/engine-show/v1"
    shown = told["data"]
    assert shown["ready_path"].startswith("/")
    for part in ("facts", "flags", "metrics", "old_names"):
        assert [one for one in shown[part] if not one["source"]] == []
    if engine != EngineKind.OPENAI:
        abouts = {fact["about"] for fact in shown["facts"]}
        assert abouts >= {"ready", "queue", "errors", "cancel", "drain", "prefill/decode"}
        assert shown["owned_fields"]


@pytest.mark.parametrize("columns", ["40", "160"])
def test_it_is_readable_on_a_narrow_and_on_a_wide_screen(run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections with titles; nothing is wider than the screen."""
    monkeypatch.setenv("COLUMNS", columns)
    ran = run("engine", "show", "vllm")
    assert ran.code == 0
    for title in ("Behaviour", "Metrics by purpose", "Old names", "Request fields of its own"):
        assert title in ran.out
    assert all(len(line) <= int(columns) for line in ran.out.splitlines())


def test_an_unknown_engine_is_wrong_usage(run) -> None:
    """Exit 2 with the engines there are."""
    ran = run("engine", "show", "vllmm")
    assert ran.code == 2
    assert "sglang" in ran.err
