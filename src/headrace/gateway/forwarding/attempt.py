"""One attempt at one endpoint: what it holds there, and what the endpoint and routing learn from how it ends."""

from dataclasses import dataclass
from typing import Protocol

from headrace.domain.usage import UNKNOWN_USAGE, TokenUsage
from headrace.engines.contract import EngineError
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.forwarding.core.retry_budget import RetryBudget
from headrace.gateway.forwarding.ports import Placement


class Holding(Protocol):
    """What else an attempt holds at its engine: a slot, or the KV that another engine has computed."""

    def over(self, *, is_answered: bool) -> None:
        """The attempt has ended. Called once."""
        ...


@dataclass(slots=True, eq=False)
class Attempt:
    """From the pick to the end there; exactly one of `leave`, `answered` and `failed` is called, once."""

    endpoint: Endpoint
    claim: Claim
    placement: Placement | None
    """What routing predicted of it."""
    begun_mono_s: float
    was_usable: bool
    """The endpoint was in use when the attempt was sent."""
    holding: Holding | None = None

    def first_token(self, now_mono_s: float) -> None:
        """The prompt is computed."""
        self.claim.first_token()
        if self.placement is not None:
            self.placement.first_token(now_mono_s)

    def leave(self) -> None:
        """It is over without an answer, and nobody is to blame."""
        self.claim.free()
        if self.placement is not None:
            self.placement.ended(UNKNOWN_USAGE, is_answered=False)
        if self.holding is not None:
            self.holding.over(is_answered=False)

    def answered(self, usage: TokenUsage) -> None:
        """The engine has answered whole."""
        self.endpoint.request_succeeded()
        self.claim.free()
        if self.placement is not None:
            self.placement.ended(usage, is_answered=True)
        if self.holding is not None:
            self.holding.over(is_answered=True)

    def failed(
        self,
        detail: str,
        now_mono_s: float,
        budgets: tuple[RetryBudget, ...],
        *,
        is_blamed: bool,
        is_refused: bool,
        engine_error: EngineError | None,
    ) -> None:
        """It failed by the engine's fault. `is_blamed`: for the first time for this request."""
        self.leave()
        endpoint = self.endpoint
        if engine_error is not None and engine_error.is_out:
            endpoint.engine_is_out(engine_error.message, now_mono_s, is_unknown_model=engine_error.is_unknown_model)
        elif is_blamed:
            endpoint.request_failed(detail, now_mono_s, is_refused=is_refused)
        if self.was_usable and not endpoint.is_usable:
            for budget in budgets:  # a death is absorbed whole: what was sent there before brings a retry of its own
                budget.add_reserve(1)
