"""Checks that the modules which may be compiled (pyproject.toml, `hooks.custom`) still can be, and mean the same then.

mypyc compiles what mypy can type-check. Beyond that it takes a few things otherwise than Python does, without a word:
1. Options of a class (`class Line(msgspec.Struct, frozen=True)`) are dropped: a base takes them (`domain/record.py`).
2. Annotations of a Struct are lost where they are unions: what is decoded from JSON stands in a module of its own.
3. A second name for a method (`charge = take`) becomes an attribute that nobody sets.
4. A field annotated `object` looks that name up where it is not.
5. A class that only others derive from, in modules that are not compiled, refuses what is made of theirs.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "headrace"


def read_modules() -> list[Path]:
    """The modules that HEADRACE_COMPILE=1 compiles."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    return [SOURCE / name for name in hook["modules"]]


def find_problems(path: Path, everything: str, root: Path = ROOT) -> Iterator[str]:
    """What would not mean the same. `everything`: the text of all modules."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ClassDef):
            continue
        place = f"{path.relative_to(root)}:{node.lineno}: {node.name}"
        if node.keywords:
            yield f"{place} has options, which are dropped when compiled: a base must have them (domain/record.py)"
        if any(ast.unparse(base) in ("msgspec.Struct", "Record") for base in node.bases) and re.search(
            rf"(?:Decoder\(|decode\([^()]*type=)[^()]*\b{node.name}\b", everything
        ):
            yield f"{place} is decoded, and loses its annotations when compiled: move it to a module of its own"
        methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        for each in node.body:
            if isinstance(each, ast.Assign) and isinstance(each.value, ast.Name) and each.value.id in methods:
                yield f"{place}: a second name for {each.value.id} is not set when compiled: write the method out"
            if isinstance(each, ast.AnnAssign) and ast.unparse(each.annotation) == "object":
                yield f"{place}: the annotation `object` fails when compiled: write `object | None`"


def find_heirs(modules: list[Path], sources: dict[Path, str]) -> Iterator[str]:
    """Classes of modules that are not compiled, of a base that is."""
    compiled = {"headrace." + ".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in modules}
    protocols = {
        node.name
        for path in modules
        for node in ast.parse(sources.get(path, "")).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    }  # whatever has their methods is taken
    for path, text in sources.items():
        if path in modules:
            continue
        tree = ast.parse(text)
        taken = {
            name.asname or name.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in compiled
            for name in node.names
        }
        for node in ast.walk(tree):
            for base in node.bases if isinstance(node, ast.ClassDef) else ():
                if isinstance(base, ast.Name) and base.id in taken - protocols:
                    yield f"{path}:{base.lineno}: {base.id} is compiled, and cannot be derived from here: move either"


def main() -> int:
    modules = read_modules()
    missing = [f"pyproject.toml: no module {path.relative_to(SOURCE)}" for path in modules if not path.exists()]
    sources = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    everything = "\n".join(sources.values())
    problems = missing or [problem for path in modules for problem in find_problems(path, everything)]
    problems += [] if missing else find_heirs(modules, sources)
    print("\n".join(problems), end="\n" if problems else "")
    checked = subprocess.run([sys.executable, "-m", "mypy", *map(str, modules)], cwd=ROOT)
    return 1 if problems or checked.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
