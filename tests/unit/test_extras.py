"""Packages that only some declarations need."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from headrace.extras import Extra, install_hint, is_installed, missing_text

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_the_extras_are_those_of_the_project() -> None:
    """What pyproject.toml offers has a message, and the reverse."""
    assert {extra.value for extra in Extra} == set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("extra", Extra)
def test_the_command_installs_into_the_python_that_runs(extra: Extra) -> None:
    """It names the package and its versions, not headrace, which may have come from a clone."""
    words = shlex.split(install_hint(extra).removeprefix("Install it: "))
    assert sys.executable in words
    assert words[-1:] == PROJECT["optional-dependencies"][extra.value]


@pytest.mark.parametrize("extra", Extra)
def test_the_message_says_who_needs_which_package(extra: Extra) -> None:
    """The declared key, the package and the extra."""
    package = re.match(r"[a-z-]+", PROJECT["optional-dependencies"][extra.value][0])
    assert package is not None
    expected = f'x.y needs the package {package[0]} (extra "{extra.value}"), which is not installed here'
    assert missing_text("x.y", extra) == expected


def test_the_development_environment_has_them() -> None:
    """Tests of PostgreSQL, Redis and KV events run."""
    assert all(map(is_installed, Extra))
