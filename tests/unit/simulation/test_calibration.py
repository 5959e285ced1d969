"""The calibration file: written, read back, checked."""

import pytest
from pydantic import ValidationError
from tests.unit.simulation.test_fitting import TRUTH

from headrace.simulation.calibration import parse_calibration, render_calibration


def test_what_was_written_is_read_back() -> None:
    """A calibration survives its file."""
    assert parse_calibration(render_calibration(TRUTH)) == TRUTH


def test_the_clock_has_the_coefficients() -> None:
    """A step is the sum of its prices."""
    assert TRUTH.clock().step_s(10, 55, 10, 2, 2, 100) == pytest.approx(0.006 + 0.03 + 55 * 2e-6 + 0.01 + 100 * 5e-6)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [("fixed_s: -1", "greater than or equal to 0"), ("fixed_ms: 3", "fixed_ms"), ("fixed_s: soon", "number")],
)
def test_a_wrong_file_is_refused_by_name(change: str, complaint: str) -> None:
    """Negative times, unknown keys and words where numbers belong are named."""
    text = render_calibration(TRUTH).replace("fixed_s: 0.006", change)

    with pytest.raises(ValidationError, match=complaint):
        parse_calibration(text)
