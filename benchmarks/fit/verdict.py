"""A prediction held against measured runs: the error of p50 TTFT and TPOT, and what error would be no wonder."""

from dataclasses import dataclass
from statistics import mean, median, stdev

from headrace.simulation.samples import MeasuredRun

ALLOWED_RATIO = 0.15
"""An error up to here is good enough for planning, whatever the variation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One quantity. Units: seconds and ratios."""

    quantity: str
    predicted_s: float
    measured_s: tuple[float, ...]
    """p50 over the streams, run by run."""

    @property
    def error_ratio(self) -> float:
        """How far the prediction is from the median of the runs."""
        return abs(self.predicted_s / median(self.measured_s) - 1)

    @property
    def variation_ratio(self) -> float:
        """Standard deviation from run to run, relative to the mean."""
        return stdev(self.measured_s) / mean(self.measured_s) if len(self.measured_s) > 1 else 0.0

    @property
    def bound_ratio(self) -> float:
        return max(ALLOWED_RATIO, 2 * self.variation_ratio)

    @property
    def is_met(self) -> bool:
        return self.error_ratio <= self.bound_ratio

    def line(self) -> str:
        runs = ", ".join(f"{value * 1000:.1f}" for value in self.measured_s)
        return (
            f"{self.quantity} p50: predicted {self.predicted_s * 1000:.1f} ms, measured {runs} ms; error "
            f"{self.error_ratio:.1%}, run-to-run variation {self.variation_ratio:.1%}, bound {self.bound_ratio:.1%}: "
            f"{'met' if self.is_met else 'MISSED'}"
        )


def judge(predicted_ttft_s: float, predicted_tpot_s: float, runs: list[MeasuredRun]) -> list[Verdict]:
    """Return the verdicts on both quantities."""
    ttft = tuple(median(request.ttft_s for request in run.requests) for run in runs)
    tpot = tuple(median(request.tpot_s or 0.0 for request in run.requests) for run in runs)
    return [
        Verdict(quantity="TTFT", predicted_s=predicted_ttft_s, measured_s=ttft),
        Verdict(quantity="TPOT", predicted_s=predicted_tpot_s, measured_s=tpot),
    ]
