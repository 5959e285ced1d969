"""What was measured on a real engine, as the fit reads it: runs of streams, each request with its few moments."""

from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field

from headrace.simulation.model import CacheKind, EngineModel, KvModel, SchedulingBounds, StepClock
from headrace.simulation.outcome import mean_gap_s

Seconds = Annotated[float, Field(ge=0)]
Tokens = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineShape(Strict):
    """How the measured engine batches: needed to know which request was in which step."""

    cache: CacheKind
    """Its way of finding prefixes, though prompts of a fit share none."""
    max_sequences: Tokens
    max_batched_tokens: Tokens
    context_tokens: Tokens
    kv_tokens: Tokens
    """Tokens of KV in all."""
    block_tokens: Tokens = 1
    is_prefill_mixed: bool = True

    def model(self, clock: StepClock) -> EngineModel:
        """Return the engine model of this shape with some clock."""
        return EngineModel(
            clock=clock,
            bounds=SchedulingBounds(
                max_sequences=self.max_sequences,
                max_batched_tokens=self.max_batched_tokens,
                context_tokens=self.context_tokens,
                is_prefill_mixed=self.is_prefill_mixed,
            ),
            kv=KvModel(
                total_blocks=self.kv_tokens // self.block_tokens, block_tokens=self.block_tokens, kind=self.cache
            ),
        )


class PlannedRequest(Strict):
    """A request of a run: when it is sent, from the run's start, and its lengths."""

    sent_at_s: Seconds
    input_tokens: Tokens
    output_tokens: Tokens


class MeasuredRequest(PlannedRequest):
    """The same after it ran: when its caller saw the first and the last token, from the run's start."""

    first_token_at_s: Seconds
    ended_at_s: Seconds

    @property
    def ttft_s(self) -> float:
        return self.first_token_at_s - self.sent_at_s

    @property
    def tpot_s(self) -> float | None:
        return mean_gap_s(self.first_token_at_s, self.ended_at_s, self.output_tokens)


class MeasuredRun(Strict):
    """Requests that were in the engine together, and no others."""

    requests: Annotated[list[MeasuredRequest], Field(min_length=1)]


class Samples(Strict):
    """A file of measured runs on one engine."""

    version: Annotated[int, Field(ge=1, le=1)] = 1
    engine: str
    """Name and version."""
    model: str
    hardware: str
    measured_at: str
    """UTC, ISO 8601."""
    shape: EngineShape
    runs: Annotated[list[MeasuredRun], Field(min_length=1)]


def parse_samples(text: str) -> Samples:
    """Read a samples file (YAML or JSON). Errors: pydantic.ValidationError, yaml.YAMLError."""
    return Samples.model_validate(yaml.safe_load(text))
