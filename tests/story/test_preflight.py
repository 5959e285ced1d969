"""`headrace check` on captured machines: each has one planted fault, and that one is named, alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import main

CAPTURES = Path(__file__).parents[1] / "captures" / "preflight"
SITUATIONS = sorted(folder.name for folder in CAPTURES.iterdir())


def situation(name: str) -> dict[str, Any]:
    return json.loads((CAPTURES / name / "situation.json").read_text())


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run `headrace check` on a captured machine; return its exit code and what it printed."""
    monkeypatch.setenv("HEADRACE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))

    def run(name: str, *more: str) -> tuple[object, str]:
        folder = str(CAPTURES / name)
        with pytest.raises(SystemExit) as left:
            main(["check", "--config", f"{folder}/headrace.yaml", "--from-capture", folder, *more])
        return left.value.code, capsys.readouterr().out

    return run


def failed_codes(told: dict[str, Any]) -> list[str]:
    """Keys of the declaration's errors, and codes of findings that failed."""
    keys = [problem["key"] for problem in told["problems"] if problem["severity"] == "error"]
    pools = told["preflight"]["pools"] if told["preflight"] is not None else []
    return keys + [one["code"] for pool in pools for one in pool["findings"] if one["level"] == "fail"]


@pytest.mark.parametrize("name", SITUATIONS)
def test_exactly_the_planted_fault_is_named(check, name: str) -> None:
    """Of all that is looked at, the one thing that is wrong fails, with what mends it; a healthy machine passes."""
    planted = situation(name)["planted"]
    code, out = check(name, "--json")
    told = json.loads(out)["data"]
    assert failed_codes(told) == ([] if planted is None else [planted])
    assert code in ((0, None) if planted is None else (3,))
    for pool in told["preflight"]["pools"] if told["preflight"] else ():
        for finding in pool["findings"]:
            assert finding["level"] != "fail" or (finding["seen"] and finding["needed"] and finding["remedy"])


def test_the_situations_are_those_that_were_asked_for() -> None:
    """Fifteen planted faults and a healthy machine; at least eight are made after public reports."""
    told = [situation(name) for name in SITUATIONS]
    assert sum(one["planted"] is not None for one in told) == 15
    assert len({one["planted"] for one in told}) == 16
    assert sum(bool(one["made_after"]) for one in told) >= 8


def test_a_person_reads_what_to_change(check) -> None:
    """The text names the pool, what was seen, what is needed and the keys that would mend it."""
    _, out = check("kv_cache_too_small")
    assert "pool main (vllm, chat) cannot run as declared: 1 failed" in out
    assert "needed: one sequence of models.chat.context_tokens: 131072" in out
    assert "pools.main.parallel.tensor: 4" in out


def test_the_longest_context_that_is_proposed_fits(check) -> None:
    """Following the remedy mends it."""
    _, out = check("kv_cache_too_small")
    longest = out.split("One of: models.chat.context_tokens: ")[1].split(";")[0]
    code, _ = check("kv_cache_too_small", "--set", f"models.chat.context_tokens={longest}")
    assert code in (0, None)
    code, _ = check("kv_cache_too_small", "--set", f"models.chat.context_tokens={int(longest) + 64}")
    assert code == 3
