"""Installs a real engine into an environment of its own, once: `ensure_installed(recipe)`.

The environments lie under HEADRACE_CACHE_DIR (default ~/.cache/headrace) in `real-engines/<engine>-<version>`. Each
step leaves a mark, so that an installation that was broken off goes on where it was; changed pins install anew.
"""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.real.model_conversion import convert

from headrace.declaration.builtin import BUILTIN_MODEL, BUILTIN_SHA256, BUILTIN_SOURCE
from headrace.domain.endpoint import EngineKind
from headrace.fleet.deploy.models import ModelFetchError, ModelStore
from headrace.settings import load_settings

NEEDED_BYTES = 12 * 2**30
"""Of free disk before an installation begins: SGLang's environment with a CUDA build of PyTorch has 6 GB, and pip
unpacks beside it. Measured."""

CHAT_TEMPLATE = Path(__file__).parents[1] / "captures" / "llamacpp" / "tools_template.jinja"
"""ChatML with tools; without tools in a request it is what headrace gives the bundled model on llama.cpp."""

CONVERTER = Path(__file__).with_name("model_conversion.py")

SHOWN_LINES = 12
"""Of pip's complaint."""


class NotInstallableError(Exception):
    """The engine cannot be installed or run on this machine; the message is the reason a test is skipped with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRecipe:
    """What to install, and in which order."""

    kind: EngineKind
    version: str
    folder: Path
    """Holds `requirements.txt` (resolved and pinned) and `engine.txt` (the engine itself, without its dependencies)."""
    finish: Callable[[Path], None]
    """Called with the environment's Python when all packages are in."""
    import_check: str
    """Python statements that fail where the engine cannot run on this machine."""


def engines_folder() -> Path:
    """Where environments and the converted model are kept."""
    return load_settings().cache_dir / "real-engines"


def environment_folder(recipe: InstallRecipe) -> Path:
    return engines_folder() / f"{recipe.kind}-{recipe.version}"


def ensure_installed(recipe: InstallRecipe) -> Path:
    """Install what is missing and return the environment's Python.

    Raises: NotInstallableError with the reason.
    """
    if sys.platform != "linux":
        raise NotInstallableError(f"{recipe.kind} has CPU builds for Linux only; this is {sys.platform}")
    folder = environment_folder(recipe)
    python = folder / "bin" / "python"
    pins = hashlib.sha256(b"".join((recipe.folder / name).read_bytes() for name in ("requirements.txt", "engine.txt")))
    done = folder / f".installed-{pins.hexdigest()[:16]}"
    with locked(folder.with_name(folder.name + ".lock")):
        if not done.exists():
            install(recipe, folder, python)
            done.touch()
    return python


def install(recipe: InstallRecipe, folder: Path, python: Path) -> None:
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < NEEDED_BYTES:
        raise NotInstallableError(
            f"{recipe.kind} needs {NEEDED_BYTES >> 30} GiB of disk in {folder.parent}; {free_bytes >> 30} are free"
        )
    started_mono_s = time.monotonic()
    tell(f"installing {recipe.kind} {recipe.version} into {folder} ...")
    run("making the environment", [sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    run(f"installing {recipe.kind}'s requirements", [*pip, "-r", str(recipe.folder / "requirements.txt")])
    run(f"installing {recipe.kind}", [*pip, "--no-deps", "-r", str(recipe.folder / "engine.txt")])
    recipe.finish(python)
    run(f"importing {recipe.kind}", [str(python), "-c", recipe.import_check])
    tell(f"installed {recipe.kind} {recipe.version} in {time.monotonic() - started_mono_s:.0f} s")


def run(what: str, argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-SHOWN_LINES:])
        raise NotInstallableError(f"{what} failed (exit {done.returncode}): {tail}")


def ensure_model() -> Path:
    """Fetch the bundled model, convert it once, and return the Hugging Face folder, named after all that made it.

    Raises: NotInstallableError where it cannot be fetched.
    """
    made_of = BUILTIN_SHA256.encode() + CHAT_TEMPLATE.read_bytes() + CONVERTER.read_bytes()
    folder = engines_folder() / f"{BUILTIN_MODEL}-{hashlib.sha256(made_of).hexdigest()[:8]}"
    with locked(folder.with_name(folder.name + ".lock")):
        try:
            gguf_path = ModelStore(load_settings().cache_dir).ensure_now(BUILTIN_SOURCE, BUILTIN_SHA256)
        except ModelFetchError as error:
            raise NotInstallableError(f"the bundled model cannot be fetched: {error}") from error
        convert(gguf_path, folder, chat_template=CHAT_TEMPLATE.read_text())
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; it ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
