"""The format's version."""

import pytest

from headrace.declaration.problem import Severity

REST = "models: {m: {source: 'file:.'}}\npools: {p: {model: m}}\n"


def test_a_missing_version_is_a_warning(problems) -> None:
    """A file without version is read as the current one, and told so."""
    (problem,) = problems(REST)
    assert (problem.severity, problem.message) == (Severity.WARNING, "is missing, version 1 is assumed")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2", "was written for a newer headrace"),
        ("0", "is not a format version"),
        ("one", "is not a format version"),
        ("true", "is not a format version"),
        ("[1]", "is not a format version"),
    ],
)
def test_other_versions_are_the_only_problem_said(problems, version: str, message: str) -> None:
    """Keys of a format that is not known are not judged."""
    (problem,) = problems(f"version: {version}\nunknown_key: 1\n" + REST)
    assert (problem.severity, problem.line, problem.message) == (Severity.ERROR, 1, message)
