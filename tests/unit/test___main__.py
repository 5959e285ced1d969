"""What an installed headrace offers besides its command."""

import subprocess
import sys
from importlib.resources import files


def test_runs_as_a_module() -> None:
    """`python -m headrace` is the headrace command."""
    done = subprocess.run([sys.executable, "-m", "headrace", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("headrace ")


def test_says_that_it_is_typed() -> None:
    """Type checkers use the annotations of an installed headrace (PEP 561)."""
    assert files("headrace").joinpath("py.typed").is_file()
