"""Nowhere in src is one kind of undecodable JSON forgotten."""

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "headrace"
DECODING = {"msgspec.MsgspecError", "msgspec.DecodeError", "json.JSONDecodeError"}
ENOUGH = {"UNDECODABLE", "RecursionError", "Exception", "MISSHAPEN"}


def names(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {ast.unparse(kind).lstrip("*") for kind in kinds if kind is not None}


def suppressed(node: ast.AST) -> set[str]:
    is_suppress = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "suppress"
    return {ast.unparse(kind).lstrip("*") for kind in node.args} if is_suppress else set()


def forgetful(tree: ast.AST) -> Iterator[int]:
    """Lines of `except` that know broken JSON and not JSON that is nested too deeply."""
    for node in ast.walk(tree):
        if suppressed(node) & DECODING and not suppressed(node) & ENOUGH:
            yield node.lineno
        if isinstance(node, ast.Try):
            caught = [names(handler) for handler in node.handlers]
            for handler, kinds in zip(node.handlers, caught, strict=True):
                if kinds & DECODING and not set().union(*caught) & ENOUGH:
                    yield handler.lineno


def test_deep_json_is_caught_wherever_broken_json_is() -> None:
    """Three thousand brackets from a caller or an engine are a fault of theirs, and end nothing of ours."""
    found = [
        f"{path.relative_to(SRC)}:{line}"
        for path in sorted(SRC.rglob("*.py"))
        for line in forgetful(ast.parse(path.read_bytes()))
    ]
    assert found == [], "catch headrace.domain.undecodable.UNDECODABLE instead"


def test_what_forgets_is_found() -> None:
    """The search itself sees a handler that knows decoding errors alone."""
    source = "try:\n  f()\nexcept (OSError, msgspec.DecodeError):\n  pass\n"
    assert list(forgetful(ast.parse(source))) == [3]
    assert list(forgetful(ast.parse("with contextlib.suppress(msgspec.MsgspecError):\n  f()\n"))) == [1]
    assert list(forgetful(ast.parse(source + "except RecursionError:\n  pass\n"))) == []
