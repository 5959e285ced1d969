"""Checks sizes and names: files, functions, `__init__.py`, and the words that say nothing.

Limits: src and tools 500 lines a file, tests 700, functions 60, `__init__.py` 40. Files whose first line holds
"generated" are exempt. tools/size_allowances.txt may name exceptions (`path[:function] limit`); it may only shrink.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWANCES = ROOT / "tools" / "size_allowances.txt"
FOLDERS = ("src", "tests", "tools", "benchmarks")

FILE_LINES, TEST_FILE_LINES, FUNCTION_LINES, INIT_LINES = 500, 700, 60, 40
EMPTY_WORDS = frozenset("utils util helpers helper common misc manager handler impl v2".split())
"""Say nothing wherever they stand in the name of a module, class or function."""
EMPTY_ALONE = frozenset("data info base new final".split())
"""Say nothing as a name or in the name of a module or class; `new_key` of a function is fine."""
FOREIGN_NAMES = frozenset(("data_received",))
"""Names that a library's interface dictates (asyncio.Protocol)."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+[0-9]*|[0-9]+")


def words_of(name: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [word.lower() for part in name.split("_") for word in WORD.findall(part)]


def empty_words(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    """Return the words of a definition's name that say nothing."""
    words = words_of(node.name)
    is_strict = isinstance(node, ast.ClassDef) or len(words) == 1
    return set() if node.name in FOREIGN_NAMES else (EMPTY_WORDS | (EMPTY_ALONE if is_strict else set())) & set(words)


def read_allowances() -> dict[str, int]:
    """Read `path[:function] limit` lines."""
    allowed: dict[str, int] = {}
    for line in ALLOWANCES.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            key, limit = line.split()
            allowed[key] = int(limit)
    return allowed


def python_files() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts):
                yield path


def file_limit(name: str) -> int:
    if name.endswith("__init__.py"):
        return INIT_LINES
    return TEST_FILE_LINES if name.startswith("tests/") else FILE_LINES


def check_file(path: Path, allowed: dict[str, int], used: set[str], root: Path = ROOT) -> Iterator[str]:
    """Yield what is wrong with one file; note the allowances that were needed."""
    text = path.read_text()
    lines = text.splitlines()
    if lines and "generated" in lines[0].lower():
        return
    name = path.relative_to(root).as_posix()

    def is_over(key: str, size: int, limit: int) -> bool:
        if size > limit and key in allowed:
            used.add(key)
        return size > allowed.get(key, limit)

    if is_over(name, len(lines), file_limit(name)):
        yield f"{name}: {len(lines)} lines, limit {file_limit(name)}: split it by role"
    if bad := (EMPTY_WORDS | EMPTY_ALONE).intersection(words_of(path.stem)):
        yield f"{name}: the file's name says nothing ({', '.join(sorted(bad))}): name what is in it"
    for node in ast.walk(ast.parse(text, filename=name)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if bad := empty_words(node):
            yield f"{name}:{node.lineno}: {node.name} says nothing ({', '.join(sorted(bad))}): name what it is or does"
        if isinstance(node, ast.ClassDef):
            continue
        size = (node.end_lineno or node.lineno) - node.lineno + 1
        if is_over(f"{name}:{node.name}", size, FUNCTION_LINES):
            yield f"{name}:{node.lineno}: {node.name} has {size} lines, limit {FUNCTION_LINES}"


def main() -> int:
    allowed, used = read_allowances(), set[str]()
    problems = [problem for path in python_files() for problem in check_file(path, allowed, used)]
    problems += [f"{ALLOWANCES.name}: {key} is no longer needed: take it out" for key in sorted(set(allowed) - used)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
