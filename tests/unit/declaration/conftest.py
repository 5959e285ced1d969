"""What the tests of the declaration share: a folder to write files in, and a loader that returns the problems."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from headrace.declaration.lint import Machine
from headrace.declaration.load import Loaded, load_text
from headrace.declaration.problem import DeclarationError, Problem

MACHINE = Machine(has_file=lambda path: Path(path).exists(), threads=4)

Load = Callable[..., Loaded]
Problems = Callable[..., tuple[Problem, ...]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a YAML text as tmp_path/headrace.yaml."""

    def load_it(text: str, *, is_elsewhere: bool = False, **environ: str) -> Loaded:
        path = tmp_path / "headrace.yaml"
        return load_text(dedent(text), path=path, environ=environ, is_elsewhere=is_elsewhere, machine=MACHINE)

    return load_it


@pytest.fixture
def problems(load: Load) -> Problems:
    """Load a YAML text and return everything that was found, errors and warnings."""

    def load_it(text: str, *, is_elsewhere: bool = False, **environ: str) -> tuple[Problem, ...]:
        try:
            return load(text, is_elsewhere=is_elsewhere, **environ).warnings
        except DeclarationError as error:
            return error.problems

    return load_it
