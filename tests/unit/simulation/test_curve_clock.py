"""The measured curve over the rows of a step."""

import pytest

from headrace.simulation.curve_clock import CurveClock

CLOCK = CurveClock(knots=(1, 4, 8), step_times_s=(1.0, 4.0, 2.0))


@pytest.mark.parametrize(
    ("rows", "step_s"), [(1, 1.0), (2, 2.0), (4, 4.0), (6, 3.0), (8, 2.0)], ids=lambda value: str(value)
)
def test_between_points_the_curve_is_straight(rows: int, step_s: float) -> None:
    """Real kernels may be faster with more rows; the curve shows it."""
    assert CLOCK.step_s(rows, 0, 0, 0, 0, 0) == pytest.approx(step_s)


def test_prompts_and_generating_sequences_count_alike() -> None:
    """Rows are rows, whoever they belong to."""
    assert CLOCK.step_s(3, 0, 0, 3, 3, 0) == pytest.approx(CLOCK.step_s(6, 0, 0, 0, 0, 0))


def test_beyond_the_last_point_the_last_line_goes_on_if_it_rises() -> None:
    """What was not measured is extrapolated, but never to less than the largest step that was."""
    rising = CurveClock(knots=(1, 10), step_times_s=(1.0, 10.0))

    assert rising.step_s(100, 0, 0, 0, 0, 0) == pytest.approx(100.0)
    assert CLOCK.step_s(100, 0, 0, 0, 0, 0) == 2.0


def test_one_point_is_a_constant() -> None:
    """A clock of one point takes the same for every step."""
    constant = CurveClock(knots=(4,), step_times_s=(0.02,))

    assert constant.step_s(1, 0, 0, 0, 0, 0) == constant.step_s(0, 0, 0, 64, 64, 0) == 0.02
