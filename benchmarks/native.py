"""Builds the mock engine and the load client, both in C, into `.cache/bin`."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.problem import BenchmarkError

FOLDER = Path(__file__).resolve().parent
CACHE = FOLDER / ".cache"
"""Everything this package builds or installs; safe to delete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePrograms:
    """Paths of the built programs."""

    mock_engine: Path
    load: Path


def build_native() -> NativePrograms:
    """Compile what is older than its sources."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchmarkError(
            "make bench needs a C compiler for its load client and mock engine: install one "
            "(Debian: apt-get install gcc libc6-dev) or name it in CC"
        )
    (CACHE / "bin").mkdir(parents=True, exist_ok=True)
    return NativePrograms(mock_engine=_build(compiler, "mock_engine"), load=_build(compiler, "load"))


def _build(compiler: str, name: str) -> Path:
    source, program = FOLDER / f"{name}.c", CACHE / "bin" / name
    newest_source = max(path.stat().st_mtime for path in (source, *FOLDER.glob("*.h")))
    if program.exists() and program.stat().st_mtime > newest_source:
        return program
    partial = program.with_suffix(f".{os.getpid()}")
    built = subprocess.run(
        [compiler, "-O2", "-Wall", "-Wextra", "-o", str(partial), str(source)], capture_output=True, text=True
    )
    if built.returncode != 0:
        raise BenchmarkError(f"{compiler} cannot build {source.name}:\n{built.stderr.strip()}")
    partial.replace(program)
    return program
