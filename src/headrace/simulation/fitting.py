"""Fits step times to measured runs: replay, solve, replay with what was found, until the schedule stands still.

Whoever was in which step depends little on how long steps take, and given that, every measured moment is a sum of
coefficients: a non-negative least-squares problem.
"""

from collections.abc import Sequence
from statistics import median

from headrace.simulation.calibration import Calibration, FitQuality, StepCoefficients
from headrace.simulation.replay import ReplayedRequest, replay
from headrace.simulation.samples import MeasuredRequest, Samples

ROUNDS = 12
"""Schedules stand still after two or three."""
SWEEPS = 20_000
SETTLED_RATIO = 1e-12
"""Coordinate descent ends when no coefficient moves by more than this part of itself."""

Row = tuple[tuple[float, ...], float]
"""One equation, scaled so that its right side is 1 for a moment measured exactly: errors are relative."""


def fit(samples: Samples) -> Calibration:
    """Return the coefficients that give the measured moments back best, in relative terms."""
    calibration = _first_guess(samples)
    for _ in range(ROUNDS):
        rows = [row for pair in _replay_all(samples, calibration) for row in _equations(*pair)]
        solved = solve_non_negative(rows)
        following = _with_coefficients(calibration, solved)
        if following == calibration:
            break
        calibration = following
    return calibration.model_copy(update={"fit": _judge(samples, calibration)})


def _first_guess(samples: Samples) -> Calibration:
    """All steps alike, as long as one gap between tokens: enough to know who meets whom."""
    gaps = [request.tpot_s for run in samples.runs for request in run.requests if request.tpot_s]
    return Calibration(
        engine=samples.engine,
        model=samples.model,
        hardware=samples.hardware,
        measured_at=samples.measured_at,
        step=StepCoefficients(fixed_s=min(gaps, default=0.01)),
    )


def _with_coefficients(calibration: Calibration, solved: Sequence[float]) -> Calibration:
    fixed_s, prefill_token_s, prefill_pair_s, decode_token_s, kv_token_s, overhead_s = (
        float(f"{value:.6g}") for value in solved
    )
    step = StepCoefficients(
        fixed_s=fixed_s,
        prefill_token_s=prefill_token_s,
        prefill_pair_s=prefill_pair_s,
        decode_token_s=decode_token_s,
        kv_token_s=kv_token_s,
    )
    return calibration.model_copy(update={"step": step, "request_overhead_s": overhead_s})


def _replay_all(samples: Samples, calibration: Calibration) -> list[tuple[MeasuredRequest, ReplayedRequest]]:
    pairs: list[tuple[MeasuredRequest, ReplayedRequest]] = []
    for run in samples.runs:
        pairs += zip(run.requests, replay(samples.shape, calibration, run.requests), strict=True)
    return pairs


def _equations(measured: MeasuredRequest, replayed: ReplayedRequest) -> list[Row]:
    """Return one equation for the first token and one for the time after it."""
    rows: list[Row] = []
    if measured.ttft_s > 0:
        elapsed_s = measured.first_token_at_s - replayed.busy_since_s
        rows.append(_scaled((*replayed.first_work, 1.0), elapsed_s, measured.ttft_s))
    after_s = measured.ended_at_s - measured.first_token_at_s
    if after_s > 0:
        after_work = (end - first for end, first in zip(replayed.end_work, replayed.first_work, strict=True))
        rows.append(_scaled((*after_work, 0.0), after_s, after_s))
    return rows


def _scaled(left: tuple[float, ...], right: float, unit: float) -> Row:
    return tuple(value / unit for value in left), right / unit


def solve_non_negative(rows: Sequence[Row]) -> list[float]:
    """Return the non-negative vector with the least sum of squared errors, by coordinate descent.

    Source: Franc, Hlavac, Navara 2005, sequential coordinate-wise algorithm for non-negative least squares.
    """
    size = len(rows[0][0])
    scale = [max((abs(left[column]) for left, _right in rows), default=0.0) or 1.0 for column in range(size)]
    columns = [[left[column] / scale[column] for left, _right in rows] for column in range(size)]
    rights = [right for _left, right in rows]
    gram = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in columns] for one in columns]
    slope = [-sum(a * b for a, b in zip(column, rights, strict=True)) for column in columns]
    values = [0.0] * size
    for _ in range(SWEEPS):
        largest = 0.0
        for index in range(size):
            if gram[index][index] <= 0.0:
                continue
            updated = max(0.0, values[index] - slope[index] / gram[index][index])
            change = updated - values[index]
            if change:
                values[index] = updated
                slope = [before + change * column for before, column in zip(slope, gram[index], strict=True)]
                largest = max(largest, abs(change) / (abs(updated) + 1e-30))
        if largest < SETTLED_RATIO:
            break
    return [value / unit for value, unit in zip(values, scale, strict=True)]


def _judge(samples: Samples, calibration: Calibration) -> FitQuality:
    pairs = _replay_all(samples, calibration)
    ttft = [abs(replayed.ttft_s / measured.ttft_s - 1) for measured, replayed in pairs if measured.ttft_s > 0]
    decode = [
        abs(replayed.tpot_s / measured.tpot_s - 1)
        for measured, replayed in pairs
        if measured.tpot_s and replayed.tpot_s
    ]
    return FitQuality(
        requests=len(pairs),
        median_ttft_error_ratio=round(median(ttft), 4),
        median_decode_error_ratio=round(median(decode), 4) if decode else 0.0,
    )
