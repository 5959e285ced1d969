"""Non-negative least squares."""

import pytest

from headrace.simulation.least_squares import solve_non_negative, solve_robustly


def test_an_exact_solution_is_found() -> None:
    """Three equations that agree give their two unknowns."""
    assert solve_non_negative([((1.0, 1.0), 5.0), ((1.0, 2.0), 8.0), ((2.0, 1.0), 7.0)]) == pytest.approx([2.0, 3.0])


def test_no_coefficient_is_negative() -> None:
    """Where a plain least-squares solution would go below zero, zero is the answer."""
    rows = [((1.0, 1.0), 1.0), ((1.0, 2.0), 0.5), ((1.0, 3.0), 0.4)]

    constant, slope = solve_non_negative(rows)

    assert slope == 0.0
    assert constant == pytest.approx(sum(right for _left, right in rows) / 3)


def test_an_unknown_that_nothing_depends_on_stays_zero() -> None:
    """A column of zeros does no harm."""
    assert solve_non_negative([((1.0, 0.0), 3.0), ((2.0, 0.0), 6.0)]) == pytest.approx([3.0, 0.0])


def test_unknowns_of_very_different_size_are_told_apart() -> None:
    """Seconds a step and nanoseconds a pair come out of the same equations."""
    truth = (0.007, 3e-9)
    rows = [((steps, pairs), steps * truth[0] + pairs * truth[1]) for steps, pairs in ((1, 1e6), (5, 2e6), (40, 1e3))]

    assert solve_non_negative(rows) == pytest.approx(truth, rel=1e-6)


def test_outliers_count_less() -> None:
    """Two of twelve measurements are half as long again; the answer stays where the others are."""
    rows = [((1.0,), 1.0 + 0.01 * (index % 3 - 1)) for index in range(10)] + [((1.0,), 1.5), ((1.0,), 1.5)]

    assert solve_non_negative(rows)[0] == pytest.approx(1.083, abs=0.01)
    assert solve_robustly(rows)[0] == pytest.approx(1.0, abs=0.01)
