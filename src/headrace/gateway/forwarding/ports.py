"""What forwarding needs of the other steps, declared here by the one who needs it; `pipeline.py` joins them."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from headrace.declaration.gateway_plan import PoolPlan, ResumePlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.tenant import Caller
from headrace.domain.usage import TokenUsage
from headrace.engines.contract import EngineError
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.pair import ChosenPair
from headrace.gateway.forwarding.core.failover import RetryLimits
from headrace.gateway.forwarding.core.lateness import Lateness
from headrace.gateway.forwarding.core.retry_budget import RetryBudget


class DeliveryAccount(Protocol):
    """The account's side of a delivery: filled in as things happen, settled by the pipeline."""

    request_id: str
    caller: Caller | None
    attempts: int
    dispatched_mono_s: float | None
    first_output_mono_s: float | None
    endpoint: str | None
    pool: str | None
    engine: str | None
    usage: TokenUsage
    output_events: int
    detail: str | None


class GapHistogram(Protocol):
    def observe(self, value: float, times: int = 1) -> None: ...


class Meters(Protocol):
    """Counters of one model."""

    retries: int
    failovers: dict[str, int]
    resumes: dict[str, int]
    """By ResumeCause."""
    unresumed: dict[str, int]
    """Streams that broke and were not resumed, by ResumeBar."""
    hedges: dict[str, int]
    """Second attempts by what became of them: won, lost, failed."""

    @property
    def itl(self) -> GapHistogram: ...

    @property
    def resume_gap(self) -> GapHistogram: ...


class Placement(Protocol):
    """Routing's account of one attempt; it hears of what it predicted."""

    def first_token(self, now_mono_s: float) -> None: ...

    def ended(self, usage: TokenUsage, *, is_answered: bool) -> None:
        """The attempt is over, whole or not; `usage` is what its engine told. Called once."""
        ...


class Candidates(Protocol):
    """Routing, as forwarding sees it."""

    def choose(self, request: InferenceRequest, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        """Return an endpoint for the next attempt. Raises: RequestError NO_READY_ENDPOINT."""
        ...

    def placed(self, request: InferenceRequest, endpoint: Endpoint) -> Placement | None:
        """The request is being sent to `endpoint`. None where routing had no choice and wants to know no more."""
        ...

    def has_other(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> bool: ...

    def refusing(self, request: InferenceRequest, endpoint: Endpoint, error: RequestError) -> tuple[Endpoint, ...]:
        """`endpoint` has refused the request as not for it. Returns all that would say the same, of any model."""
        ...

    def split(
        self, request: InferenceRequest, endpoint: Endpoint, tried: tuple[Endpoint, ...] = ()
    ) -> ChosenPair | None:
        """Return who computes the prompt of a request that is for `endpoint`, and who answers it, not one of `tried`
        where there is another; None: `endpoint` alone. Raises: RequestError where that cannot answer alone, and
        nobody can help it.
        """
        ...

    def arriving(self, request: InferenceRequest, endpoint: Endpoint) -> Placement | None:
        """As `placed`, for a prompt that another engine computes."""
        ...

    def acquaint(self, request: InferenceRequest, pair: ChosenPair) -> None:
        """A request that nobody routed is sent to a pair."""
        ...

    def choose_whole(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        """Return an endpoint that answers the request alone, not one of `tried` where there is another; None: none."""
        ...

    def move_on(self, request: InferenceRequest, tried: tuple[Endpoint, ...]) -> bool:
        """Make the request one for another model that it may go to as well; False: there is none."""
        ...


class Ending(Protocol):
    """The end of one request. Exactly one of the two is called, once."""

    def delivered(self, status: int, answer_id: str | None) -> None:
        """The whole answer is on its way to the caller."""
        ...

    def failed(self, error: RequestError) -> None:
        """There is no whole answer. Where the head is not out yet, the error is still to be answered."""
        ...

    def report(self, bug: Exception) -> RequestError:
        """Log a bug of ours with the request's id; the answer is what its caller may know of it. Ends nothing."""
        ...


class WorkerMeters(Protocol):
    """Counters that belong to no model."""

    retry_budget_refusals: int

    def count_cancel(self, endpoint: str) -> None: ...


class Hedges(Protocol):
    """What is known of the pools that hedge."""

    def find(self, request: InferenceRequest, pool: PoolPlan) -> "Hedging | None":
        """None where the request is not hedged."""
        ...


class Hedging(Protocol):
    """One pool that hedges."""

    @property
    def lateness(self) -> Lateness: ...

    @property
    def budget(self) -> RetryBudget: ...


@dataclass(slots=True, kw_only=True)
class ResumeSettings:
    """`gateway.resume`."""

    budget: RetryBudget
    enabled: bool = True
    max_resumes: int = 2
    wait_s: float = 10.0
    drain_after_s: float = 2.0
    kept_bytes: int = 1048576
    seeded: bool = False


def resume_settings(plan: ResumePlan, budget: RetryBudget) -> ResumeSettings:
    """Forwarding's view of `gateway.resume`."""
    return ResumeSettings(
        budget=budget,
        enabled=plan.enabled,
        max_resumes=plan.max_resumes,
        wait_s=plan.wait_s,
        drain_after_s=plan.drain_after_s,
        kept_bytes=plan.kept_bytes,
        seeded=plan.seeded,
    )


@dataclass(slots=True, kw_only=True)
class ForwardingSettings:
    """Forwarding's part of the plan, and what all deliveries share. Replaced whole by a new plan."""

    loop: asyncio.AbstractEventLoop
    candidates: Candidates
    budget: RetryBudget
    retry: RetryLimits
    resume: ResumeSettings
    hedges: Hedges
    meters: WorkerMeters
    event_bytes: int
    response_bytes: int
    heartbeat_s: float | None


FAILURE_TEXT: dict[ErrorCode, str] = {
    ErrorCode.CONNECT_FAILED: "no connection to an engine could be made",
    ErrorCode.STREAM_BROKEN: "the engine's answer ended before it was complete",
    ErrorCode.STREAM_STALLED: "the engine fell silent in the middle of its answer",
    ErrorCode.FIRST_TOKEN_TIMEOUT: "the engine sent no answer in time",
    ErrorCode.KV_TRANSFER_FAILED: "the prompt was computed, but did not reach the engine that was to answer",
    ErrorCode.KV_TRANSFER_TIMEOUT: "the prompt did not reach the engine that was to answer in time",
    ErrorCode.DECODE_UNAVAILABLE: "no engine was there to answer once the prompt was computed",
}
"""What a caller is told; which endpoint, and what it did, is the operator's business and goes to the log."""


def failure_of(code: ErrorCode, engine_error: EngineError | None, attempts: int) -> RequestError:
    """What the caller is told after the last attempt."""
    if engine_error is not None and engine_error.code is ErrorCode.STREAM_BROKEN:  # whole, and no answer
        text = f"what the engine sent is of no use: {engine_error.message}"
    else:
        text = FAILURE_TEXT.get(code) or f"the engine refused: {engine_error.message if engine_error else code}"
    retry_after_s = engine_error.retry_after_s if engine_error else None
    return RequestError(code, f"{text} ({attempts} attempts); retry, or ask the operator", retry_after_s=retry_after_s)
