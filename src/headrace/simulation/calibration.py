"""The calibration file: coefficients of step times that were fitted to a real engine, in place of the roofline."""

from itertools import pairwise
from typing import Annotated

import yaml
from pydantic import Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from headrace.simulation.curve_clock import CurveClock
from headrace.simulation.samples import Seconds, Strict


class RowPoint(Strict):
    """A step that computes so many positions, of prompts and generating sequences together, takes so long."""

    rows: Annotated[int, Field(ge=1)]
    step_s: Seconds


class StepCoefficients(Strict):
    """What a step takes: a curve over its rows, and prices for attention; see `CurveClock`."""

    curve: Annotated[list[RowPoint], Field(min_length=1)]
    decode_sequence_s: Seconds = 0.0
    mixed_step_s: Seconds = 0.0
    prefill_pair_s: Seconds = 0.0
    kv_token_s: Seconds = 0.0

    @field_validator("curve")
    @classmethod
    def _is_growing(cls, curve: list[RowPoint]) -> list[RowPoint]:
        if any(before.rows >= after.rows for before, after in pairwise(curve)):
            raise ValueError("the points of the curve must be in the order of their rows, each once")
        return curve


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

    def clock(self) -> CurveClock:
        return CurveClock(
            knots=tuple(point.rows for point in self.step.curve),
            step_times_s=tuple(point.step_s for point in self.step.curve),
            decode_sequence_s=self.step.decode_sequence_s,
            mixed_step_s=self.step.mixed_step_s,
            prefill_pair_s=self.step.prefill_pair_s,
            kv_token_s=self.step.kv_token_s,
        )


class CalibrationError(Exception):
    """What is wrong with a calibration file, value by value."""


def parse_calibration(text: str) -> Calibration:
    """Read a calibration file (YAML or JSON).

    Raises: CalibrationError.
    """
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CalibrationError(f"it is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise CalibrationError("it is not a mapping (key: value lines)")
    try:
        return Calibration.model_validate(tree)
    except ValidationError as error:
        raise CalibrationError("; ".join(_said(details) for details in error.errors(include_url=False))) from error


SAID = {"missing": "is missing", "extra_forbidden": "is not a key of it"}


def _said(details: ErrorDetails) -> str:
    where = ".".join(map(str, details["loc"]))
    why = details["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{where} {SAID.get(details['type'], why)}"


def render_calibration(calibration: Calibration) -> str:
    """Write a calibration as `parse_calibration` reads it."""
    return yaml.safe_dump(calibration.model_dump(mode="json"), sort_keys=False)  # pyright: ignore[reportUnknownMemberType]
