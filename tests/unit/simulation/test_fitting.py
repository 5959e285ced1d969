"""Fitting: coefficients that made a run are found again in it, and foretell another run."""

import itertools

import pytest

from headrace.simulation.calibration import Calibration, StepCoefficients
from headrace.simulation.fitting import fit, solve_non_negative
from headrace.simulation.model import CacheKind
from headrace.simulation.replay import replay
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
        fixed_s=0.006, prefill_token_s=0.003, prefill_pair_s=2e-6, decode_token_s=0.005, kv_token_s=5e-6
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
    for asked, got in zip(planned, replay(SHAPE, truth, planned), strict=True):
        first_token_at_s = asked.sent_at_s + got.ttft_s * next(factors)
        ended_at_s = first_token_at_s + (got.ended_at_s - got.first_token_at_s) * next(factors)
        requests.append(MeasuredRequest(**asked.model_dump(), first_token_at_s=first_token_at_s, ended_at_s=ended_at_s))
    return MeasuredRun(requests=requests)


def samples(noise: tuple[float, ...] = (1.0,)) -> Samples:
    plans = [plan(streams, length) for streams in (1, 2, 4) for length in (64, 256)]
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
    return [moment for each in replay(SHAPE, calibration, plan(8, 160)) for moment in (each.ttft_s, each.tpot_s)]


def test_coefficients_are_found_again() -> None:
    """From runs of 1, 2 and 4 streams at two lengths, all that made them is recovered."""
    found = fit(samples())

    assert found.step.fixed_s == pytest.approx(TRUTH.step.fixed_s, rel=0.02)
    assert found.step.prefill_token_s == pytest.approx(TRUTH.step.prefill_token_s, rel=0.02)
    assert found.step.decode_token_s == pytest.approx(TRUTH.step.decode_token_s, rel=0.02)
    assert found.request_overhead_s == pytest.approx(TRUTH.request_overhead_s, rel=0.1)
    assert found.fit is not None
    assert found.fit.median_ttft_error_ratio < 0.001


def test_eight_streams_are_foretold_from_four() -> None:
    """What was never measured comes out as the truth would have it."""
    assert foretell(fit(samples())) == pytest.approx(foretell(TRUTH), rel=0.01)


def test_noise_of_five_percent_stays_about_that() -> None:
    """Disturbed measurements give predictions no further off than they are."""
    noisy = fit(samples(noise=(1.05, 0.95, 1.0, 0.97, 1.03)))

    assert foretell(noisy) == pytest.approx(foretell(TRUTH), rel=0.06)
    assert noisy.fit is not None
    assert 0.005 < noisy.fit.median_ttft_error_ratio < 0.05


def test_coefficients_are_never_negative() -> None:
    """Where a plain least-squares solution would go below zero, zero is the answer."""
    rows = [((1.0, 1.0), 1.0), ((1.0, 2.0), 0.5), ((1.0, 3.0), 0.4)]

    constant, slope = solve_non_negative(rows)

    assert slope == 0.0
    assert constant == pytest.approx(sum(right for _left, right in rows) / 3)


def test_one_stream_alone_can_be_fitted() -> None:
    """Too little to tell everything apart is still fitted, without a division by zero."""
    alone = samples().model_copy(update={"runs": [run_of(plan(1, 64))]})

    measured = alone.runs[0].requests[0]
    replayed = replay(SHAPE, fit(alone), plan(1, 64))[0]

    assert replayed.ttft_s == pytest.approx(measured.ttft_s, rel=0.01)
    assert replayed.tpot_s == pytest.approx(measured.tpot_s, rel=0.01)
