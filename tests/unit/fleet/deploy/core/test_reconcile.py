"""Which replicas are kept, started and ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.fleet.deploy.core.reconcile import Running, Steps, Wanted, reconcile


def running(*shapes: str, pool: str = "chat") -> list[Running[str]]:
    return [Running(pool=pool, number=number, shape=shape) for number, shape in enumerate(shapes)]


def steps(
    wanted: dict[str, Wanted[str]], present: list[Running[str]], *, taken: frozenset[int] | None = None
) -> Steps[str]:
    numbers = frozenset(replica.number for replica in present) if taken is None else taken
    [only] = reconcile(wanted, present, taken={"chat": numbers}, preferred={})
    return only


def test_nothing_changes_where_nothing_changed() -> None:
    """A reload of the same declaration touches no engine."""
    found = steps({"chat": Wanted(count=2, shape="a")}, running("a", "a"))
    assert (found.start, found.keep, found.end) == ((), (0, 1), ())


@pytest.mark.parametrize(("count", "keep", "end"), [(0, (), (0, 1)), (1, (0,), (1,)), (2, (0, 1), ())])
def test_surplus_replicas_end(count: int, keep: tuple[int, ...], end: tuple[int, ...]) -> None:
    """Fewer replicas: the highest numbers go."""
    found = steps({"chat": Wanted(count=count, shape="a")}, running("a", "a"))
    assert (found.keep, found.end) == (keep, end)


def test_more_replicas_take_free_numbers() -> None:
    """One more replica takes the lowest free number."""
    found = steps({"chat": Wanted(count=3, shape="a")}, running("a", "a"))
    assert [started.number for started in found.start] == [2]
    assert not found.is_replacement


def test_a_changed_replica_is_replaced_beside_the_old_one() -> None:
    """A changed setting starts the new replica under another number, and the old one ends after it."""
    found = steps({"chat": Wanted(count=1, shape="b")}, running("a"))
    assert [started.number for started in found.start] == [1]
    assert found.end == (0,)
    assert found.is_replacement


def test_a_pool_that_is_gone_ends() -> None:
    """A pool removed from the declaration is drained."""
    found = steps({}, running("a", "a"))
    assert found.end == (0, 1)


def test_engines_that_still_run_are_preferred() -> None:
    """The numbers of engines that an earlier supervisor left are taken first, so that they are adopted."""
    [found] = reconcile({"chat": Wanted(count=2, shape="a")}, [], taken={}, preferred={"chat": [3]})
    assert [started.number for started in found.start] == [3, 0]


@given(
    count=st.integers(0, 5),
    shapes=st.lists(st.sampled_from("ab"), max_size=6),
    leaving=st.sets(st.integers(0, 12), max_size=4),
    preferred=st.lists(st.integers(0, 12), max_size=4, unique=True),
)
def test_the_result_is_always_what_was_declared(
    count: int, shapes: list[str], leaving: set[int], preferred: list[int]
) -> None:
    """Whatever runs, afterwards exactly the declared number runs, all as declared, and no number is used twice."""
    present = running(*shapes)
    numbers = {replica.number for replica in present}
    [found] = reconcile(
        {"chat": Wanted(count=count, shape="a")},
        present,
        taken={"chat": frozenset(numbers | leaving)},
        preferred={"chat": preferred},
    )
    started = [each.number for each in found.start]
    assert len(found.keep) + len(started) == count
    assert set(found.keep) | set(found.end) == numbers
    assert all(shapes[number] == "a" for number in found.keep)
    assert len(set(started)) == len(started)
    assert not set(started) & (numbers | leaving)
