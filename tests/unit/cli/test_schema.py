"""headrace schema."""

import json
from pathlib import Path


def test_the_schema_of_the_declaration(run, tmp_path: Path) -> None:
    """It is printed, or written to a file."""
    printed = json.loads(run("schema").out)
    assert printed["title"] == "Declaration"
    assert run("schema", "--output", "s.json").code == 0
    assert json.loads((tmp_path / "s.json").read_text()) == printed
