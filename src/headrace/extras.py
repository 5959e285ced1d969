"""Packages that only some declarations need (the extras of `pyproject.toml`): which is here, and how to add one.

The command names the package itself and this Python, so that it works whatever way headrace was installed: from a
clone, a wheel or an index.
"""

import importlib.metadata
import shlex
import sys
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType


class Extra(StrEnum):
    """An extra, by its name in `pip install headrace[NAME]`."""

    KV_EVENTS = "kv-events"
    POSTGRES = "postgres"
    REDIS = "redis"


_IMPORTED = MappingProxyType({Extra.KV_EVENTS: "zmq", Extra.POSTGRES: "psycopg", Extra.REDIS: "redis"})
_PACKAGES = MappingProxyType({Extra.KV_EVENTS: "pyzmq", Extra.POSTGRES: "psycopg[binary]", Extra.REDIS: "redis"})


def is_installed(extra: Extra) -> bool:
    """Whether what the extra brings can be imported by this Python."""
    return find_spec(_IMPORTED[extra]) is not None


def missing_text(needed_by: str, extra: Extra) -> str:
    """Say which declared thing needs which package."""
    package = _PACKAGES[extra].partition("[")[0]
    return f'{needed_by} needs the package {package} (extra "{extra.value}"), which is not installed here'


def install_hint(extra: Extra) -> str:
    """Return the command that adds the extra to the environment that runs now."""
    return f"Install it: {pip_command(_requirement(extra))}"


def pip_command(requirement: str) -> str:
    """Return the command that installs a package beside headrace: with pip where there is one, else with uv."""
    python = shlex.quote(sys.executable)
    pip = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{pip} {shlex.quote(requirement)}"


def _requirement(extra: Extra) -> str:
    """The package with the versions that headrace's own metadata asks for."""
    try:
        requirements = importlib.metadata.requires("headrace") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    for text in requirements:
        requirement, _, condition = text.partition(";")
        if condition.replace('"', "'").strip() == f"extra == '{extra.value}'":
            return requirement.strip()
    return _PACKAGES[extra]
