"""Threads are shared so that all replicas together never use more cores than there are."""

import pytest

from headrace.fleet.deploy.core.threads import ThreadDemand, TooManyThreadsError, allot_threads


def test_pools_without_a_number_share_what_is_left() -> None:
    """A declared number is given first; the others share the rest equally."""
    demands = {
        "fixed": ThreadDemand(replicas=2, threads=1),
        "one": ThreadDemand(replicas=1, threads=None),
        "two": ThreadDemand(replicas=2, threads=None),
    }
    assert allot_threads(8, demands) == {"fixed": 1, "one": 2, "two": 2}


@pytest.mark.parametrize(("machine", "share"), [(1, 1), (2, 1), (3, 1), (4, 2), (64, 32)])
def test_the_sum_stays_within_the_machine(machine: int, share: int) -> None:
    """Two replicas share the cores; where there is only one, each still gets one."""
    assert allot_threads(machine, {"chat": ThreadDemand(replicas=2, threads=None)}) == {"chat": share}


def test_more_threads_than_cores_are_refused_with_both_numbers() -> None:
    """A declaration that asks for more threads than the machine has is refused."""
    with pytest.raises(TooManyThreadsError, match=r"6 threads .* 2 cores"):
        allot_threads(2, {"chat": ThreadDemand(replicas=2, threads=3)})


def test_nothing_to_run_needs_nothing() -> None:
    """An instance with remote pools only has no threads to share."""
    assert allot_threads(2, {}) == {}
