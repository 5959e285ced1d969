"""The calibration file: coefficients of step times that were fitted to a real engine, in place of the roofline."""

from typing import Annotated

import yaml
from pydantic import Field

from headrace.simulation.linear_clock import LinearClock
from headrace.simulation.samples import Seconds, Strict


class StepCoefficients(Strict):
    """Prices of what a step computes, each in seconds; see `LinearClock`."""

    fixed_s: Seconds = 0.0
    prefill_token_s: Seconds = 0.0
    prefill_pair_s: Seconds = 0.0
    decode_token_s: Seconds = 0.0
    kv_token_s: Seconds = 0.0


class FitQuality(Strict):
    """How well the coefficients give back what they were fitted to: relative errors of times to first token and of
    the time after it, over all requests."""

    requests: Annotated[int, Field(ge=1)]
    median_ttft_error_ratio: Annotated[float, Field(ge=0)]
    median_decode_error_ratio: Annotated[float, Field(ge=0)]


class Calibration(Strict):
    """Step times of one engine with one model on one machine. Whatever else was measured, nothing else is claimed."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    engine: str
    model: str
    hardware: str
    measured_at: str
    step: StepCoefficients
    request_overhead_s: Seconds = 0.0
    """What a request costs its caller outside the engine's steps, once, before its first token."""
    fit: FitQuality | None = None

    def clock(self) -> LinearClock:
        return LinearClock(**self.step.model_dump())


def parse_calibration(text: str) -> Calibration:
    """Read a calibration file (YAML or JSON). Errors: pydantic.ValidationError, yaml.YAMLError."""
    return Calibration.model_validate(yaml.safe_load(text))


def render_calibration(calibration: Calibration) -> str:
    """Write a calibration as `parse_calibration` reads it."""
    return yaml.safe_dump(calibration.model_dump(mode="json"), sort_keys=False)  # pyright: ignore[reportUnknownMemberType]
