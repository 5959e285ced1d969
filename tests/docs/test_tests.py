"""The tests themselves: each says in a sentence what a user can rely on."""

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_every_test_has_a_sentence() -> None:
    """The name and docstring of a test can be read without its body."""
    silent = [
        f"{path.relative_to(TESTS)}: {node.name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
