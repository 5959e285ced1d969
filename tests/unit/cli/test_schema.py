"""headrace schema."""

import ast
import json
from pathlib import Path

import pytest

import headrace.cli
from headrace.cli.schema import PRINTED
from headrace.tenancy.overlay import EntryKind

SOURCES = sorted(Path(headrace.cli.__file__).parent.glob("*.py"))


def test_the_schema_of_the_declaration(run, tmp_path: Path) -> None:
    """It is printed, or written to a file."""
    printed = json.loads(run("schema").out)
    assert printed["title"] == "Declaration"
    assert run("schema", "--output", "s.json").code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == printed
    assert run("schema", "--output", "none/s.json").code == 1


@pytest.mark.parametrize("verb", list(PRINTED))
def test_what_a_verb_prints_has_a_schema(run, verb: str) -> None:
    """A program can check what it reads from --json, and every reference in the schema leads somewhere."""
    ran = run("schema", verb)
    told = json.loads(ran.out)
    assert told["properties"]["schema"] == {"const": f"headrace/{verb}/v1"}
    names = {text.split('"')[0] for text in ran.out.split("#/$defs/")[1:]}
    assert names <= set(told["$defs"])
    assert told["properties"]["data"]


def test_an_unknown_schema_names_those_there_are(run) -> None:
    """A typo is wrong usage."""
    ran = run("schema", "statsu")
    assert ran.code == 2
    assert 'Did you mean "status"?' in ran.err


def printed_names() -> set[str]:
    """Every name that stands first in a call of `emit` or `emit_line`, anywhere in the verbs' modules."""
    names: set[str] = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"emit", "emit_line"}:
                name = ast.unparse(node.args[0])
                spelled = {"kind.section": [one.section for one in EntryKind], "kind.value": [*EntryKind]}
                names |= set(spelled[name]) if name in spelled else {ast.literal_eval(name)}
    return names


def test_every_name_that_a_verb_prints_has_a_schema() -> None:
    """What stands in "schema" of any --json is a name that `headrace schema` knows, and the reverse."""
    assert printed_names() == set(PRINTED)
