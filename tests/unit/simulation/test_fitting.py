"""Fitting: coefficients that made a run are found again in it, and foretell another run."""

import itertools

import pytest

from headrace.simulation.calibration import Calibration, RowPoint, StepCoefficients
from headrace.simulation.fitting import choose_knots, fit, typical_runs
from headrace.simulation.model import CacheKind
from headrace.simulation.replay import StepCounts, replay
from headrace.simulation.samples import EngineShape, MeasuredRequest, MeasuredRun, PlannedRequest, Samples

SHAPE = EngineShape(
    cache=CacheKind.SLOTS, max_sequences=8, max_batched_tokens=256, context_tokens=2048, kv_tokens=16_384
)
TRUTH = Calibration(
    engine="made up",
    model="made up",
    hardware="none",
    measured_at="2026-01-01T00:00:00Z",
    step=StepCoefficients(
        curve=[
            RowPoint(rows=1, step_s=0.007),
            RowPoint(rows=2, step_s=0.018),
            RowPoint(rows=4, step_s=0.037),
            RowPoint(rows=8, step_s=0.030),
            RowPoint(rows=32, step_s=0.090),
            RowPoint(rows=256, step_s=0.700),
        ],
        mixed_step_s=0.003,
        prefill_pair_s=2e-6,
        kv_token_s=5e-6,
    ),
    request_overhead_s=0.004,
)


def plan(streams: int, input_tokens: int, output_tokens: int = 40) -> list[PlannedRequest]:
    return [
        PlannedRequest(sent_at_s=0.005 * index, input_tokens=input_tokens, output_tokens=output_tokens)
        for index in range(streams)
    ]


def run_of(planned: list[PlannedRequest], truth: Calibration = TRUTH, noise: tuple[float, ...] = (1.0,)) -> MeasuredRun:
    """What a caller of an engine with these step times would have measured, disturbed by a cycle of factors."""
    factors = itertools.cycle(noise)
    requests = []
    for asked, got in zip(planned, replay(SHAPE, truth, planned).requests, strict=True):
        first_token_at_s = asked.sent_at_s + got.ttft_s * next(factors)
        ended_at_s = first_token_at_s + (got.ended_at_s - got.first_token_at_s) * next(factors)
        requests.append(MeasuredRequest(**asked.model_dump(), first_token_at_s=first_token_at_s, ended_at_s=ended_at_s))
    return MeasuredRun(requests=requests)


def samples(noise: tuple[float, ...] = (1.0,)) -> Samples:
    plans = [plan(streams, length) for streams in (1, 2, 4) for length in (4, 8, 16, 32, 96, 288)]
    return Samples(
        engine="made up",
        model="made up",
        hardware="none",
        measured_at="2026-01-01T00:00:00Z",
        shape=SHAPE,
        runs=[run_of(each, noise=noise) for each in plans],
    )


def foretell(calibration: Calibration) -> list[float]:
    """Times to first token and gaps of eight streams at another length."""
    return [
        moment for each in replay(SHAPE, calibration, plan(8, 160)).requests for moment in (each.ttft_s, each.tpot_s)
    ]


def test_what_made_the_runs_is_found_again() -> None:
    """From runs of 1, 2 and 4 streams at several lengths, the step times come out, whatever their curve."""
    found = fit(samples())
    clock, truth = found.clock(), TRUTH.clock()

    for work in ((0, 0, 0, 1, 1, 100), (0, 0, 0, 4, 4, 400), (8, 36, 8, 0, 0, 0), (96, 4656, 96, 0, 0, 0)):
        assert clock.step_s(*work) == pytest.approx(truth.step_s(*work), rel=0.03)
    assert found.fit is not None
    assert found.fit.median_ttft_error_ratio < 0.01
    assert found.fit.median_decode_error_ratio < 0.01


def test_eight_streams_are_foretold_from_four() -> None:
    """What was never measured comes out as the truth would have it."""
    assert foretell(fit(samples())) == pytest.approx(foretell(TRUTH), rel=0.05)


def test_noise_of_five_percent_stays_about_that() -> None:
    """Disturbed measurements give predictions no further off than they are."""
    noisy = fit(samples(noise=(1.05, 0.95, 1.0, 0.97, 1.03)))

    assert foretell(noisy) == pytest.approx(foretell(TRUTH), rel=0.10)
    assert noisy.fit is not None
    assert 0.005 < noisy.fit.median_ttft_error_ratio < 0.05


def test_points_of_the_curve_are_frequent_and_apart() -> None:
    """Rows that many steps had get a point; neighbours of these do not."""
    steps = [StepCounts(rows, False, 0, 0) for rows in (1, 1, 1, 4, 4, 5, 100, 100, 101, 256)]

    assert choose_knots(steps) == [1, 4, 100, 256]


def test_a_disturbed_repetition_does_not_count() -> None:
    """Of three equal runs, one of which took twice as long, the fit sees the usual one."""
    usual = run_of(plan(2, 64))
    slow = run_of(plan(2, 64), noise=(2.0,))

    typical = typical_runs([usual, slow, usual])

    assert len(typical) == 1
    for seen, measured in zip(typical[0].requests, usual.requests, strict=True):
        assert seen.ttft_s == pytest.approx(measured.ttft_s)
        assert seen.tpot_s == pytest.approx(measured.tpot_s)


def test_one_stream_alone_can_be_fitted() -> None:
    """Too little to tell everything apart is still fitted, without a division by zero."""
    alone = samples().model_copy(update={"runs": [run_of(plan(1, 64))]})

    measured = alone.runs[0].requests[0]
    replayed = replay(SHAPE, fit(alone), plan(1, 64)).requests[0]

    assert replayed.ttft_s == pytest.approx(measured.ttft_s, rel=0.01)
    assert replayed.tpot_s == pytest.approx(measured.tpot_s, rel=0.01)
