"""The Python that headrace runs on, which `--headrace-python` chooses: how it was built shows in every figure."""

import json
import subprocess
import sys
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


def make_environment(python: Path) -> Path:
    """An environment with headrace as locked, on `python`; returns its folder of programs. Installs on first use."""
    mark = sha256(f"{python.resolve()} {(FOLDER.parent / 'requirements/runtime.txt').read_text()}".encode()).hexdigest()
    folder = CACHE / f"headrace-{mark[:12]}"
    ready = folder / ".ready"
    if not ready.exists():
        programs = folder / "bin"
        uv = [sys.executable, "-m", "uv"]
        locked = ["--require-hashes", "-r", str(FOLDER.parent / "requirements/runtime.txt")]
        _run([*uv, "venv", "-q", "--clear", "--python", str(python), str(folder)])
        _run([*uv, "pip", "install", "-q", "--python", str(programs / "python"), *locked])
        _run([*uv, "pip", "install", "-q", "--python", str(programs / "python"), "--no-deps", "-e", str(FOLDER.parent)])
        ready.touch()
    return folder / "bin"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchmarkError(f"an environment for headrace cannot be made: {done.stderr.strip()[-400:]}")
