"""A worker never takes more callers than it has files for."""

import resource

import pytest

from headrace.gateway.open_files import KEPT_FILES, most_callers, raise_open_files


@pytest.mark.parametrize(
    ("open_files", "callers"),
    [(0, 1), (KEPT_FILES + 2, 1), (KEPT_FILES + 3, 1), (KEPT_FILES + 4, 2), (1024, 480), (1 << 20, 10_000)],
)
def test_a_caller_takes_two_files(open_files: int, callers: int) -> None:
    """Half of the files are for engines; the declared bound holds where there are enough."""
    assert most_callers(open_files, 10_000) == callers


def test_endless_files_leave_what_is_declared() -> None:
    """A system without a limit bounds nothing."""
    assert most_callers(resource.RLIM_INFINITY, 10_000) == 10_000


def test_the_soft_limit_becomes_the_hard_one() -> None:
    """What a shell starts with is not what the system grants."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
        assert raise_open_files() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
