"""Drafts: accepted by a chain of matches, the same for the same seed."""

from itertools import islice

import pytest

from headrace.simulation.model import Speculation
from headrace.simulation.speculation import accepted_drafts, uniform_numbers


def test_numbers_depend_on_seed_and_name_only() -> None:
    """The same in every process and on every platform."""
    assert list(islice(uniform_numbers(1, "a"), 3)) == list(islice(uniform_numbers(1, "a"), 3))
    assert next(uniform_numbers(1, "a")) != next(uniform_numbers(2, "a"))
    assert next(uniform_numbers(1, "a")) != next(uniform_numbers(1, "b"))
    assert all(0.0 < number <= 1.0 for number in islice(uniform_numbers(7, "x"), 1000))


@pytest.mark.parametrize(("ratio", "accepted"), [(0.0, 0), (1.0, 4)])
def test_nothing_and_everything(ratio: float, accepted: int) -> None:
    """At the ends no number matters."""
    speculation = Speculation(draft_tokens=4, acceptance_ratio=ratio)

    assert {accepted_drafts(speculation, number) for number in (1e-9, 0.5, 1.0)} == {accepted}


def test_the_first_mismatch_ends_it() -> None:
    """Two of four match with a chance of 0.7 x 0.7 x 0.3."""
    speculation = Speculation(draft_tokens=4, acceptance_ratio=0.7)
    counts = [0] * 5
    for number in islice(uniform_numbers(3, "draw"), 20_000):
        counts[accepted_drafts(speculation, number)] += 1

    assert counts[2] / 20_000 == pytest.approx(0.7 * 0.7 * 0.3, abs=0.01)
    assert counts[4] / 20_000 == pytest.approx(0.7**4, abs=0.01)
