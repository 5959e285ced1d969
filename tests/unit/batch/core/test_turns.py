"""Which batch begins next."""

from headrace.batch.core.turns import RUNNING_MOST, Waiting, choose_next

A1, A2, B3 = Waiting("a1", "a", 1.0), Waiting("a2", "a", 2.0), Waiting("b3", "b", 3.0)


def test_tenants_with_fewer_running_batches_go_first() -> None:
    """A tenant with many batches does not keep another one from its first."""
    assert choose_next([A1, A2, B3], []) == A1
    assert choose_next([A2, B3], ["a"]) == B3
    assert choose_next([A2], ["a", "a"]) == A2


def test_no_more_than_so_many_run() -> None:
    """The number of open files and lines in memory is bounded."""
    assert choose_next([A1], ["b"] * (RUNNING_MOST - 1)) == A1
    assert choose_next([A1], ["b"] * RUNNING_MOST) is None
    assert choose_next([], []) is None
