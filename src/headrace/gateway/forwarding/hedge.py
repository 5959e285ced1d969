"""A second attempt at another endpoint while the first one's first token is late; whichever speaks first is the answer.

Opt-in by pool, for streams, never of class offline. The loser is cancelled at its engine; the request is charged once.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from headrace.declaration.gateway_plan import HedgePlan, PoolPlan
from headrace.domain.errors import RequestError
from headrace.domain.request import InferenceRequest, RequestClass
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.attempt_request import attempt_body, attempt_head
from headrace.gateway.forwarding.core.lateness import Lateness
from headrace.gateway.forwarding.core.retry_budget import RetryBudget
from headrace.gateway.forwarding.ports import DeliveryAccount, ForwardingSettings, Hedging, Meters
from headrace.gateway.forwarding.slots import pin
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import AnswerReader, LossReason

MINIMUM = 1
"""Hedges always allowed within ten seconds: a quiet pool has no recent streams to take a share of. Chosen."""


class PoolHedging:
    """What one pool has learned, and may still hedge."""

    def __init__(self, plan: HedgePlan, now_mono_s: float) -> None:
        self.lateness = Lateness(plan.min_delay_s)
        self.budget = RetryBudget(ratio=plan.budget_ratio, minimum=MINIMUM, now_mono_s=now_mono_s)

    def adopt(self, plan: HedgePlan) -> None:
        """Follow a new plan; what was learned stays."""
        self.lateness.adopt(plan.min_delay_s)
        self.budget.adopt(ratio=plan.budget_ratio, minimum=MINIMUM)


class HedgeBook:
    """The pools that hedge. Concurrency: event loop only."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolHedging] = {}

    def adopt(self, pools: Iterable[PoolPlan], now_mono_s: float) -> None:
        """Follow a new plan."""
        before, self._pools = self._pools, {}
        for pool in pools:
            if pool.hedge is not None:
                kept = self._pools[pool.name] = before.get(pool.name) or PoolHedging(pool.hedge, now_mono_s)
                kept.adopt(pool.hedge)

    def sweep(self, now_mono_s: float) -> None:
        """Let what is not recent any more go from the budgets."""
        for hedging in self._pools.values():
            hedging.budget.turn(now_mono_s)

    def find(self, request: InferenceRequest, pool: PoolPlan) -> PoolHedging | None:
        """What is known of the pool, where the request may be hedged there."""
        if pool.hedge is None or not request.is_stream or request.request_class is RequestClass.OFFLINE:
            return None
        return self._pools.get(pool.name)


class Hedged(AnswerReader, Protocol):
    """Who is hedged: the delivery, to which a hedge that has won hands on all it hears."""

    request: InferenceRequest
    extra_lines: bytes
    tried: tuple[Endpoint, ...]

    @property
    def account(self) -> DeliveryAccount: ...

    @property
    def settings(self) -> ForwardingSettings: ...

    @property
    def meters(self) -> Meters: ...

    @property
    def has_spoken(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def follow(self, attempt: Attempt, sending: Sending | None) -> None: ...


def expect_first_token(hedged: Hedged, pool: PoolPlan) -> "Hedge | None":
    """The first attempt is sent. Returns the hedge that may follow; None where the request is not hedged."""
    hedging = hedged.settings.hedges.find(hedged.request, pool)
    if hedging is None:
        return None
    hedging.budget.count_request()
    hedge = Hedge(hedged, hedging)
    late_after_s = hedging.lateness.late_after_s
    if late_after_s is not None:
        hedge.timer = hedged.settings.loop.call_later(late_after_s, hedge.first_token_is_late)
    return hedge


@dataclass(slots=True, eq=False)
class Hedge:
    """Implements `AnswerReader` for the second attempt. Concurrency: event loop only."""

    hedged: Hedged
    hedging: Hedging
    timer: asyncio.TimerHandle | None = None
    attempt: Attempt | None = None
    """The second attempt, from its sending to its end."""
    sending: Sending | None = None
    has_won: bool = False
    status: int = 0
    headers: dict[bytes, bytes] | None = None

    # --- the first attempt

    def first_token_is_late(self) -> None:
        """Ask another endpoint too, unless the pool hedges too much already."""
        hedged, candidates = self.hedged, self.hedged.settings.candidates
        self.timer = None
        try:
            if hedged.is_over or hedged.has_spoken or not candidates.has_other(hedged.request, hedged.tried):
                return
            now = monotonic()
            if self.hedging.budget.try_retry(now):
                self._send(candidates.choose(hedged.request, hedged.tried), now)
        except RequestError:  # none is ready any more
            return
        except Exception as bug:  # noqa: BLE001 (boundary of this timer)
            hedged.crashed(bug)

    def first_spoke(self, first_token_s: float) -> None:
        """The first attempt, or the hedge in its place, has an answer after so long."""
        self.hedging.lateness.add(first_token_s)
        self.lose()

    def take_over(self) -> bool:
        """The first attempt has failed: the second takes its place. False where there is none."""
        if self.has_won or self.attempt is None:
            self.lose()
            return False
        self._win()
        if self.headers is not None:
            self.hedged.answer_begun(self.status, self.headers)
        return True

    def lose(self) -> None:
        """The first attempt was faster, or nobody waits any more."""
        if self.timer is not None:
            self.timer.cancel()
        attempt, self.attempt = self.attempt, None
        if attempt is not None and not self.has_won:
            attempt.leave()
            self._count("lost")
            if self.sending is not None:
                self.sending.cancel()

    # --- the second attempt (AnswerReader)

    def answer_begun(self, status: int, headers: dict[bytes, bytes]) -> None:
        if self.has_won:
            self.hedged.answer_begun(status, headers)
        else:
            self.status, self.headers = status, headers

    def answer_bytes(self, data: bytes) -> None:
        if not self.has_won and self.attempt is not None and not data.startswith(b":"):  # a comment is no token
            if not 200 <= self.status < 300:
                self._fail(f"status {self.status}", is_refused=False)
            elif self.hedged.has_spoken or self.hedged.is_over:
                self.lose()
            else:
                self.take_over()
        if self.has_won:
            self.hedged.answer_bytes(data)

    def answer_complete(self) -> None:
        if self.has_won:
            self.hedged.answer_complete()
        else:
            self._fail("no answer", is_refused=False)

    def answer_lost(self, reason: LossReason, detail: str) -> None:
        if self.has_won:
            self.hedged.answer_lost(reason, detail)
        elif reason is LossReason.STALE:
            self.lose()
        else:
            self._fail(detail, is_refused=reason is LossReason.CONNECT)

    def crashed(self, bug: Exception) -> None:
        self.hedged.crashed(bug)

    # --- inside

    def _send(self, endpoint: Endpoint, now: float) -> None:
        hedged = self.hedged
        request, account = hedged.request, hedged.account
        account.attempts += 1
        hedged.tried += (endpoint,)
        body, holding = attempt_body(request, endpoint, account.caller), None
        if endpoint.seat is not None and endpoint.seat.slots is not None:
            body, holding = pin(endpoint.seat, body)
        head = attempt_head(request, endpoint, hedged.extra_lines, b"%d" % account.attempts, len(body))
        placement = hedged.settings.candidates.placed(request, endpoint)
        claim = Claim(endpoint, request.estimated_input_tokens)
        self.attempt = Attempt(endpoint, claim, placement, now, endpoint.is_usable, holding)
        endpoint.requests += 1
        self.sending = endpoint.connections.send(head, body, self)

    def _win(self) -> None:
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        self.has_won = True
        self._count("won")
        self.hedged.follow(attempt, self.sending)

    def _fail(self, detail: str, *, is_refused: bool) -> None:
        """It fails quietly: the first attempt is still under way. What is refused may be the request's own fault: the
        first attempt finds out, and nobody is blamed here.
        """
        attempt, self.attempt = self.attempt, None
        if attempt is None:
            return
        if self.sending is not None:
            self.sending.cancel()
        self._count("failed")
        is_blamed = not 400 <= self.status < 500
        attempt.failed(detail, monotonic(), (), is_blamed=is_blamed, is_refused=is_refused, engine_error=None)

    def _count(self, result: str) -> None:
        counts = self.hedged.meters.hedges
        counts[result] = counts.get(result, 0) + 1
