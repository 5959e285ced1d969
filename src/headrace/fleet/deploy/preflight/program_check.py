"""Whether the program that a pool starts is on this machine, asked of the same command that `headrace up` would run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from headrace.declaration.model import Declaration
from headrace.engines.contract import EngineUnavailableError, Launch
from headrace.fleet.deploy.launch_preview import preview_launches
from headrace.fleet.deploy.preflight.core.finding import Finding, fail, ok, warn
from headrace.settings import Settings

LOOK_S = 20.0
"""An interpreter from a cold disk."""
CONTAINERS = ("docker", "podman")
"""Judged as `container-runtime`."""
LOOK = "import importlib.util as u, sys; sys.exit(0 if u.find_spec(sys.argv[1].split('.')[0]) else 3)"


def check_program(declaration: Declaration, settings: Settings, pool: str) -> Iterator[Finding]:
    """Yield whether the first replica of `pool` could be started."""
    try:
        [preview] = preview_launches(declaration, settings, pool=pool)
    except EngineUnavailableError as error:
        yield fail("program", str(error), needed="a command that this machine can run", remedy="")
        return
    launch, engine = preview.launch, preview.engine
    program = launch.argv[0]
    if program in CONTAINERS:
        return
    found = shutil.which(program)
    remedy = (
        f"Install {engine} and set pools.{pool}.runtime.python to the Python of its environment, or "
        f"pools.{pool}.runtime.command to what starts it."
    )
    if found is None:
        yield fail(
            "program", f"{program} is not here, or cannot be executed", needed=f"{engine}'s program", remedy=remedy
        )
        return
    match _has_module(launch):
        case False:
            seen = f"{program} has no module {launch.argv[2].partition('.')[0]}"
            yield fail("program", seen, needed=f"the environment that has {engine}", remedy=remedy)
        case None:
            yield warn("program", f"{program} does not answer", remedy=remedy)
        case True:
            yield ok("program", found)


def _has_module(launch: Launch) -> bool | None:
    """For `PYTHON -m MODULE`: whether that Python has it; None: it did not say."""
    argv = launch.argv
    if len(argv) < 3 or argv[1] != "-m" or argv[0] == sys.executable:
        return True
    try:
        ran = subprocess.run(
            (argv[0], "-c", LOOK, argv[2]),
            env={**os.environ, **launch.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LOOK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {0: True, 3: False}.get(ran.returncode)
