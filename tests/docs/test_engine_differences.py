"""docs/engine-differences.md: every test that it names is there, and so is every one that a continuation row names."""

import re
from pathlib import Path

import pytest

from headrace.domain.endpoint import EngineKind
from headrace.engines.continuation import Trailing
from headrace.engines.registry import driver_for

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "engine-differences.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py::[a-z_0-9]+)`", PAGE)))


def is_there(name: str) -> bool:
    path, _, test = name.partition("::")
    file = ROOT / "tests" / path.removeprefix("tests/")
    return file.exists() and re.search(rf"def {test}\b", file.read_text()) is not None


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_the_page_names_exists(name: str) -> None:
    """A difference is handled only as long as its test is there."""
    assert is_there(name)


def test_every_line_of_the_tables_names_its_test() -> None:
    """No difference stands there without proof."""
    tables = PAGE.split("## Answers that the caller has begun")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| diff"))]
    assert len(rows) > 20
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize("kind", EngineKind)
def test_facts_of_continuation_rows_name_tests_that_exist(kind: EngineKind) -> None:
    """A fact that says it is proved can be looked up."""
    facts = driver_for(kind).dialect.continuation.facts
    assert len(facts) == 7
    assert [fact.proved_by for fact in facts.values() if fact.proved_by and not is_there(fact.proved_by)] == []


def test_the_page_shows_the_rows_as_they_are() -> None:
    """What the page says of echoes and schemas is what the code acts on."""
    rows = {kind: driver_for(kind).dialect.continuation for kind in EngineKind}
    columns = [EngineKind.LLAMACPP, EngineKind.VLLM, EngineKind.SGLANG]
    for text, name in (
        ("a whole answer repeats it", "whole_echoes"),
        ("a stream repeats it", "stream_echoes"),
        ("a schema holds for old and new words together", "grammar_replays"),
        ("tokens, log-probabilities, stop strings are of the new words", "counts_new_tokens"),
    ):
        [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {text} |")]
        cells = [cell.strip().split(":")[0] for cell in line.split("|")[2:-1]]
        assert cells == ["yes" if rows[kind].facts[name].holds else "no" for kind in columns]
    unproved = [kind for kind in columns if rows[kind].keeps_reasoning.proved_by is None]
    assert PAGE.count("not proved: refused") == len(unproved)
    assert rows[EngineKind.SGLANG].trailing is Trailing.FOR_THE_USERS
