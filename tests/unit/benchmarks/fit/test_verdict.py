"""A prediction is held against measured runs."""

import pytest
from benchmarks.fit.verdict import judge

from headrace.simulation.samples import MeasuredRequest, MeasuredRun


def run(*ttft_s: float, tpot_s: float = 0.01) -> MeasuredRun:
    return MeasuredRun(
        requests=[
            MeasuredRequest(
                sent_at_s=0.0, input_tokens=8, output_tokens=11, first_token_at_s=each, ended_at_s=each + 10 * tpot_s
            )
            for each in ttft_s
        ]
    )


@pytest.mark.parametrize(
    ("predicted_s", "is_met"), [(1.0, True), (1.149, True), (1.151, False), (0.851, True), (0.849, False)]
)
def test_fifteen_percent_is_allowed_of_steady_runs(predicted_s: float, is_met: bool) -> None:
    """Runs that agree leave no room beyond it."""
    ttft, tpot = judge(predicted_s, 0.01, [run(0.9, 1.0, 1.1)] * 5)

    assert ttft.is_met is is_met
    assert tpot.is_met
    assert ttft.variation_ratio == 0.0


def test_twice_the_variation_is_allowed_of_unsteady_runs() -> None:
    """Runs that differ by a fifth of their mean allow two fifths."""
    ttft, _tpot = judge(1.3, 0.01, [run(0.8), run(1.2), run(0.8), run(1.2), run(1.0)])

    assert ttft.variation_ratio == pytest.approx(0.2)
    assert ttft.bound_ratio == pytest.approx(0.4)
    assert ttft.is_met


def test_the_line_says_both_numbers() -> None:
    """Error and variation are both reported, with every run."""
    ttft, tpot = judge(1.2, 0.02, [run(1.0), run(1.0)])

    assert ttft.line() == (
        "TTFT p50: predicted 1200.0 ms, measured 1000.0, 1000.0 ms; error 20.0%, run-to-run variation 0.0%, "
        "bound 15.0%: MISSED"
    )
    assert "TPOT p50: predicted 20.0 ms, measured 10.0, 10.0 ms; error 100.0%" in tpot.line()
