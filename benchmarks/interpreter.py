"""The Python that headrace runs on, which `--headrace-python` chooses: how it was built shows in every figure."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.native import CACHE, FOLDER
from benchmarks.problem import BenchmarkError

_QUESTION = (
    "import json, platform, sys, sysconfig; "
    "print(json.dumps([platform.python_version(), sysconfig.get_config_var('CONFIG_ARGS') or '', sys.base_prefix]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What is known of one Python."""

    version: str
    build: str
    """In words for the report."""


def read_interpreter(program: Path) -> Interpreter:
    """Ask `program` itself. Raises: BenchmarkError where it is no Python."""
    told = subprocess.run([str(program), "-c", _QUESTION], capture_output=True, text=True)
    if told.returncode != 0:
        raise BenchmarkError(f"{program} is no usable Python: {told.stderr.strip()[-300:]}")
    version, config_args, prefix = json.loads(told.stdout)
    return Interpreter(version=version, build=describe_build(config_args, prefix))


def describe_build(config_args: str, prefix: str) -> str:
    """Say whether profile-guided optimisation was on; distributions switch it on without a word in `config_args`."""
    if "--enable-optimizations" in config_args:
        return "built with PGO"
    if prefix == "/usr":
        return "the distribution's build; Debian and Ubuntu build with PGO"
    return "built without PGO"


def make_environment(python: Path, *, is_compiled: bool = False) -> Path:
    """An environment with headrace as locked, on `python`; returns its folder of programs. Installs on first use.

    `is_compiled`: with its hot path compiled, as the sources stand now; otherwise it follows the sources.
    """
    told = f"{python.resolve()} {(FOLDER.parent / 'requirements/runtime.txt').read_text()}"
    if is_compiled:
        told += "".join(path.read_text() for path in sorted((FOLDER.parent / "src").rglob("*.py")))
    folder = CACHE / f"headrace-{sha256(told.encode()).hexdigest()[:12]}{'-compiled' if is_compiled else ''}"
    ready = folder / ".ready"
    if not ready.exists():
        programs = folder / "bin"
        uv = [sys.executable, "-m", "uv"]
        locked = ["--require-hashes", "-r", str(FOLDER.parent / "requirements/runtime.txt")]
        _run([*uv, "venv", "-q", "--clear", "--python", str(python), str(folder)])
        _run([*uv, "pip", "install", "-q", "--python", str(programs / "python"), *locked])
        install = [*uv, "pip", "install", "-q", "--python", str(programs / "python")]
        if is_compiled:
            _run([*install, "--require-hashes", "-r", str(FOLDER.parent / "requirements/build.txt")])
            own = [*install, "--no-deps", "--no-build-isolation", "--no-cache", str(FOLDER.parent)]
            _run(own, environment={"HEADRACE_COMPILE": "1"})
        else:
            _run([*install, "--no-deps", "-e", str(FOLDER.parent)])
        ready.touch()
    return folder / "bin"


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        raise BenchmarkError(f"an environment for headrace cannot be made: {done.stderr.strip()[-400:]}")
