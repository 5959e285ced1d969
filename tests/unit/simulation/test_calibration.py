"""The calibration file: written, read back, checked."""

import pytest
from tests.unit.simulation.test_fitting import TRUTH

from headrace.simulation.calibration import CalibrationError, parse_calibration, render_calibration


def test_what_was_written_is_read_back() -> None:
    """A calibration survives its file."""
    assert parse_calibration(render_calibration(TRUTH)) == TRUTH


def test_the_clock_follows_the_curve() -> None:
    """Twelve rows lie between the points of eight and 32; generating sequences and attention come on top."""
    between_s = 0.030 + (0.090 - 0.030) * 4 / 24
    step = TRUTH.step.model_copy(update={"decode_sequence_s": 0.0004})
    clock = TRUTH.model_copy(update={"step": step}).clock()

    expected_s = between_s + 0.003 + 2 * 0.0004 + 55 * 2e-6 + 100 * 5e-6
    assert clock.step_s(10, 55, 10, 2, 2, 100) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("step_s: -1", "greater than or equal to 0"),
        ("step_ms: 3", "step_ms"),
        ("step_s: soon", "number"),
        ("step_s: 1\n  - rows: 2\n    step_s: 2", "order of their rows"),
    ],
)
def test_a_wrong_file_is_refused_by_name(change: str, complaint: str) -> None:
    """Negative times, unknown keys and words where numbers belong are named."""
    text = render_calibration(TRUTH).replace("step_s: 0.018", change)

    with pytest.raises(CalibrationError, match=complaint):
        parse_calibration(text)
