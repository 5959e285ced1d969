"""headrace schema."""

import json
from pathlib import Path

import pytest

from headrace.cli.schema import PRINTED


def test_the_schema_of_the_declaration(run, tmp_path: Path) -> None:
    """It is printed, or written to a file."""
    printed = json.loads(run("schema").out)
    assert printed["title"] == "Declaration"
    assert run("schema", "--output", "s.json").code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == printed


@pytest.mark.parametrize("verb", list(PRINTED))
def test_what_a_verb_prints_has_a_schema(run, verb: str) -> None:
    """A program can check what it reads from --json, and every reference in the schema leads somewhere."""
    ran = run("schema", verb)
    told = json.loads(ran.out)
    assert told["properties"]["schema"] == {"const": f"headrace/{verb}/v1"}
    names = {text.split('"')[0] for text in ran.out.split("#/$defs/")[1:]}
    assert names <= set(told["$defs"])
    assert names


def test_an_unknown_schema_names_those_there_are(run) -> None:
    """A typo is wrong usage."""
    ran = run("schema", "statsu")
    assert ran.code == 2
    assert 'Did you mean "status"?' in ran.err
