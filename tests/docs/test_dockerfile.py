"""The project's own image: its Dockerfile is linted here, and its build steps are run in a folder.

The image itself is not built: that needs a daemon.
"""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import __version__

ROOT = Path(__file__).resolve().parents[2]
SECRET = re.compile(r"(?i)(password|secret|token|api[_-]?key)\s*=")


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction."""

    stage: int
    word: str
    rest: str


def _steps() -> list[Step]:
    """Read the Dockerfile: comments out, continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    steps: list[Step] = []
    stage = -1
    for whole in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        word, _, rest = whole.partition(" ")
        stage += word == "FROM"
        steps.append(Step(stage, word, rest.strip()))
    return steps


def _rest_of(word: str, stage: int | None = None) -> list[str]:
    return [step.rest for step in _steps() if step.word == word and stage in (None, step.stage)]


def test_the_base_is_pinned_and_there_are_two_stages() -> None:
    """A version with its patch level and distribution, never latest; what builds is not shipped."""
    assert _rest_of("ARG") == ["PYTHON_IMAGE=docker.io/library/python:3.12.12-slim-bookworm"]
    assert _rest_of("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]
    assert "latest" not in (ROOT / "Dockerfile").read_text()


def test_it_runs_without_rights() -> None:
    """The last stage ends as a user by number, so that runAsNonRoot can be checked, and is not root."""
    assert _rest_of("USER", 1) == ["65532:65532"]
    users = [step.word for step in _steps() if step.stage == 1]
    assert users.index("USER") < users.index("ENTRYPOINT")


def test_it_holds_no_secret_and_fetches_nothing_unchecked() -> None:
    """No ADD, no variable that looks like a secret, and hashes for all that is installed from an index."""
    words = {step.word for step in _steps()}
    assert words == {
        *("ARG", "FROM", "WORKDIR", "COPY", "RUN", "LABEL", "ENV", "USER", "EXPOSE", "STOPSIGNAL"),
        *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
    }
    assert [step.rest for step in _steps() if step.word in ("ENV", "ARG") and SECRET.search(step.rest)] == []
    installs = [part for rest in _rest_of("RUN") for part in rest.split("&&") if "pip install" in part]
    assert len(installs) == 4
    unchecked = [part for part in installs if "--require-hashes" not in part]
    assert [part.split()[-1] for part in unchecked] == ["requirements/bootstrap.txt", "/dist/*.whl"]
    assert re.fullmatch(r"(?:[\w-]+==[\w.]+\n)+", (ROOT / "requirements/bootstrap.txt").read_text())


def test_its_health_is_whether_it_lives() -> None:
    """Words, not a shell line; /health, which does not depend on engines."""
    (check,) = _rest_of("HEALTHCHECK")
    options, _, command = check.partition("CMD ")
    assert "--start-period" in options
    assert "'/health'" in json.loads(command)[-1]
    assert json.loads(_rest_of("ENTRYPOINT")[0]) == ["headrace"]
    assert json.loads(_rest_of("CMD")[0]) == ["up"]


def test_its_version_is_the_one_that_is_rendered() -> None:
    """The tag in its first lines is what `headrace render` writes."""
    assert f"headrace:{__version__} ." in (ROOT / "Dockerfile").read_text()


def _is_sent(path: str) -> bool:
    """Whether .dockerignore lets `path` through: the last pattern that matches decides."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    is_ignored = False
    for line in lines:
        pattern = line.removeprefix("!")
        names = [path, *map(str, Path(path).parents)]
        if any(fnmatch.fnmatch(name, pattern.removeprefix("**/")) or name == pattern for name in names):
            is_ignored = not line.startswith("!")
    return not is_ignored


def test_the_builder_gets_what_is_copied_and_nothing_else() -> None:
    """Each source of COPY is there and sent; tests, state and version control are not."""
    copied = [word for rest in _rest_of("COPY", 0) for word in rest.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists() or not _is_sent(name)] == []
    private = (".git/config", ".venv/bin/python", "tests/conftest.py", ".headrace/x", "headrace.yaml", "src/x.pyc")
    assert [name for name in private if _is_sent(name)] == []
    assert _is_sent("src/headrace/cli/main.py")


def _run_steps(folder: Path) -> Path:
    """Run the RUN and COPY steps of the build stage below `folder`; return the environment that would be shipped."""
    places = {"/src": folder / "src", "/build": folder / "build", "/venv": folder / "venv", "/dist": folder / "dist"}
    places["/src"].mkdir()
    env = {**os.environ, "UV_LINK_MODE": "hardlink"}
    for step in _steps():
        if step.stage == 0 and step.word == "COPY":
            *sources, target = step.rest.split()
            for name in sources:
                destination = places["/src"] / target / ("" if (ROOT / name).is_dir() else Path(name).name)
                destination.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, destination, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / name, destination)
        elif step.stage == 0 and step.word == "RUN" and not step.rest.startswith("apt-get"):
            line = re.sub(r"(?<![\w.])(/build|/venv|/dist)\b", lambda found: str(places[found[1]]), step.rest)
            # the installer's cache makes this quick; an image has none
            line = line.replace("--no-cache ", "").replace("--compile-bytecode ", "")
            line = line.replace("HEADRACE_COMPILE=1 ", "")  # minutes of a C compiler: `make test-compiled` does that
            line = re.sub(r"^python ", f"{sys.executable} ", line)
            done = subprocess.run(
                ["sh", "-c", line], cwd=places["/src"], env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step.rest}\n{done.stdout}\n{done.stderr}"
    return places["/venv"]


@pytest.mark.slow
def test_the_build_steps_make_an_environment_that_works(tmp_path: Path) -> None:
    """The steps of the Dockerfile, run one after the other, end in an environment with headrace and its drivers."""
    venv = _run_steps(tmp_path)
    env = {
        "PATH": f"{venv / 'bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HEADRACE_STATE_DIR": str(tmp_path / "state"),
    }
    said = subprocess.run(["headrace", "--version"], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"headrace {__version__}"
    code = "import psycopg, redis, xllamacpp, headrace.fleet.deploy.models.__main__"
    subprocess.run(["python", "-c", code], env=env, check=True)
    packages = sorted(path.name for path in venv.glob("lib/python*/site-packages/*.dist-info"))
    assert not [name for name in packages if name.startswith(("pip-", "uv-", "hatchling-", "pytest-"))]
