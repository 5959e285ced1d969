"""How a Python was built, as far as it can be known."""

import sys
from pathlib import Path

import pytest
from benchmarks.interpreter import describe_build, read_interpreter
from benchmarks.problem import BenchmarkError


def test_a_build_with_profile_guided_optimisation_is_known_by_its_arguments() -> None:
    """Python says how it was configured; distributions do not, and are said to be what they are."""
    assert describe_build("'--enable-optimizations' '--with-lto'", "/usr/local/python") == "built with PGO"
    assert describe_build("'--prefix=/usr/local/python'", "/usr/local/python") == "built without PGO"
    assert describe_build("'--prefix=/usr'", "/usr").startswith("the distribution's build")


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    """The report names the Python that ran, so it must be asked."""
    assert read_interpreter(Path(sys.executable)).version.startswith("3.")
    with pytest.raises(BenchmarkError, match="no usable Python"):
        read_interpreter(Path("/bin/false"))
