"""docs/security.md: what it says is proved is proved by a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_proof_exists() -> None:
    """A row names a test that is there, so that the page promises nothing that nobody checks."""
    text = (ROOT / "docs" / "security.md").read_text()
    table = text.partition("| threat |")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines()[2:] if line.startswith("|")]
    assert len(rows) > 10
    assert [row for row in rows if not PROOF.search(row)] == []
    missing = [f"{path}::{name}" for path, name in PROOF.findall(text) if name not in functions_of(ROOT / path)]
    assert missing == []


def functions_of(path: Path) -> set[str]:
    if not path.exists():
        return set()
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
