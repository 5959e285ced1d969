"""Fits step times to measured runs: replay, solve, replay with what was found, until the schedule stands still.

Who was in which step depends little on how long steps take, and given that, every measured moment is a sum of step
times, each a sum of coefficients: a non-negative least-squares problem in which far outliers count less.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import median

from headrace.simulation.calibration import Calibration, FitQuality, RowPoint, StepCoefficients
from headrace.simulation.curve_clock import share_of
from headrace.simulation.least_squares import Row, solve_robustly
from headrace.simulation.replay import Replay, ReplayedRequest, StepCounts, replay
from headrace.simulation.samples import EngineShape, MeasuredRequest, MeasuredRun, Samples

ROUNDS = 12
"""Schedules stand still after two or three."""
NOISE_S = 0.003
"""Moments are not measured better than this: errors of short times count as if these were longer."""
KNOT_RATIO = 1.4
"""Points of the curve are at least this far apart."""


def fit(samples: Samples) -> Calibration:
    """Return the step times that give the measured moments back best, in relative terms."""
    runs = typical_runs(samples.runs)
    calibration = _first_guess(samples, runs)
    for _ in range(ROUNDS):
        replays = [replay(samples.shape, calibration, run.requests) for run in runs]
        knots = choose_knots(step for each in replays for step in each.steps)
        rows = [row for run, each in zip(runs, replays, strict=True) for row in _equations(run, each, knots)]
        following = _with_solution(calibration, knots, solve_robustly(rows))
        if following == calibration:
            break
        calibration = following
    return calibration.model_copy(update={"fit": judge_fit(samples.shape, calibration, samples.runs)})


def typical_runs(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return one run for each plan that was repeated: of each moment the median, so that a disturbed run is no more
    than that."""
    alike: defaultdict[tuple[tuple[int, int], ...], list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        alike[tuple((request.input_tokens, request.output_tokens) for request in run.requests)].append(run)
    return [
        MeasuredRun(requests=[_typical(same) for same in zip(*(run.requests for run in group), strict=True)])
        for group in alike.values()
    ]


def _typical(same: Sequence[MeasuredRequest]) -> MeasuredRequest:
    sent_at_s = median(request.sent_at_s for request in same)
    first_token_at_s = sent_at_s + median(request.ttft_s for request in same)
    after_s = median(request.ended_at_s - request.first_token_at_s for request in same)
    return same[0].model_copy(
        update={
            "sent_at_s": sent_at_s,
            "first_token_at_s": first_token_at_s,
            "ended_at_s": first_token_at_s + after_s,
        }
    )


def choose_knots(steps: Iterable[StepCounts]) -> list[int]:
    """Return the numbers of rows at which the curve gets a point: the frequent ones, none too close to another."""
    frequent = Counter(step.rows for step in steps).most_common()
    knots: list[int] = []
    for rows, _count in sorted(frequent, key=lambda item: (-item[1], item[0])):
        if all(max(rows, knot) >= KNOT_RATIO * min(rows, knot) for knot in knots):
            knots.append(rows)
    return sorted(knots)


def _first_guess(samples: Samples, runs: Sequence[MeasuredRun]) -> Calibration:
    """All steps alike, as long as the shortest gap between tokens: enough to know who meets whom."""
    gaps = [request.tpot_s for run in runs for request in run.requests if request.tpot_s]
    return Calibration(
        engine=samples.engine,
        model=samples.model,
        hardware=samples.hardware,
        measured_at=samples.measured_at,
        step=StepCoefficients(curve=[RowPoint(rows=1, step_s=min(gaps, default=0.01))]),
    )


def _with_solution(calibration: Calibration, knots: Sequence[int], solution: Sequence[float]) -> Calibration:
    values = [float(f"{value:.6g}") for value in solution]
    mixed_step_s, prefill_pair_s, kv_token_s, overhead_s = values[len(knots) :]
    step = StepCoefficients(
        curve=[RowPoint(rows=rows, step_s=step_s) for rows, step_s in zip(knots, values, strict=False)],
        mixed_step_s=mixed_step_s,
        prefill_pair_s=prefill_pair_s,
        kv_token_s=kv_token_s,
    )
    return calibration.model_copy(update={"step": step, "request_overhead_s": overhead_s})


def _equations(run: MeasuredRun, replayed: Replay, knots: Sequence[int]) -> list[Row]:
    """Return an equation for each first token and for the time after it, scaled so that errors are relative."""
    columns = [list(accumulate(column, initial=0.0)) for column in _columns(replayed.steps, knots)]
    rows: list[Row] = []
    for measured, request in zip(run.requests, replayed.requests, strict=True):
        if measured.ttft_s > 0:
            before = [column[request.first_step] - column[request.busy_step] for column in columns]
            rows.append(_scaled([*before, 1.0], measured.first_token_at_s - request.busy_since_s, measured.ttft_s))
        after_s = measured.ended_at_s - measured.first_token_at_s
        if after_s > 0:
            after = [column[request.end_step] - column[request.first_step] for column in columns]
            rows.append(_scaled([*after, 0.0], after_s, after_s))
    return rows


def _columns(steps: Sequence[StepCounts], knots: Sequence[int]) -> list[list[float]]:
    """Return, for each coefficient, how often each step counts it.

    A price for each generating sequence is not among them: in steps that only generate it cannot be told from the
    curve, and elsewhere it would take up noise (measured: the same runs are given back no better with it).
    """
    columns = [[0.0] * len(steps) for _ in range(len(knots) + 3)]
    for index, step in enumerate(steps):
        share = share_of(knots, step.rows)
        columns[share.left][index] += 1.0 - share.right_ratio
        columns[share.right][index] += share.right_ratio
        columns[-3][index] = float(step.is_mixed)
        columns[-2][index] = step.prefill_pairs
        columns[-1][index] = step.decode_kv_tokens
    return columns


def _scaled(left: Sequence[float], right: float, seconds: float) -> Row:
    unit = seconds + NOISE_S
    return tuple(value / unit for value in left), right / unit


def judge_fit(shape: EngineShape, calibration: Calibration, runs: Sequence[MeasuredRun]) -> FitQuality:
    """Return how far the calibration is from single measured runs."""
    pairs: list[tuple[MeasuredRequest, ReplayedRequest]] = []
    for run in runs:
        pairs += zip(run.requests, replay(shape, calibration, run.requests).requests, strict=True)
    ttft = [abs(replayed.ttft_s / measured.ttft_s - 1) for measured, replayed in pairs if measured.ttft_s > 0]
    decode = [
        abs(replayed.tpot_s / measured.tpot_s - 1)
        for measured, replayed in pairs
        if measured.tpot_s and replayed.tpot_s
    ]
    return FitQuality(
        requests=len(pairs),
        median_ttft_error_ratio=round(median(ttft), 4) if ttft else 0.0,
        median_decode_error_ratio=round(median(decode), 4) if decode else 0.0,
    )
