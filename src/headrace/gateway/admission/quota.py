"""The quota of one worker: reserves for each request before it is dispatched, and settles whatever its end.

The shell of `core/purse.py`: makes purses of plan and callers, knows prices and speeds, learns how long answers are.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import msgspec

from headrace.declaration.gateway_plan import GatewayPlan
from headrace.declaration.tenancy_plan import TenancyPlan
from headrace.domain.errors import ERRORS, ErrorCode, Outcome, RequestError
from headrace.domain.ids import KeyId
from headrace.domain.quota import BUDGETS, MICROSECONDS, NO_LIMITS, Level, LimitId, LimitSet, Spent
from headrace.domain.record import Record
from headrace.domain.request import ApiDialect, InferenceRequest, RequestClass
from headrace.domain.tenant import Caller, KeyRecord
from headrace.domain.undecodable import UNDECODABLE
from headrace.domain.usage import TokenUsage
from headrace.gateway.admission.budget_watch import BudgetWatch
from headrace.gateway.admission.core.caps import check_caps, tightest
from headrace.gateway.admission.core.gpu_rates import PoolSpeed
from headrace.gateway.admission.core.meter import Meter, MeterFactory
from headrace.gateway.admission.core.output_lengths import OutputLengths
from headrace.gateway.admission.core.pricing import Tariff
from headrace.gateway.admission.core.purse import Amounts, Purse, Reservation, Shortage, no_amounts
from headrace.gateway.admission.core.rate_headers import RateHeaders
from headrace.gateway.admission.core.refusal import refusal
from headrace.gateway.admission.gpu_clock import GpuClock

INTERACTIVE, OFFLINE = RequestClass.INTERACTIVE, RequestClass.OFFLINE
EMBEDDINGS, COMPLETIONS = ApiDialect.EMBEDDINGS, ApiDialect.COMPLETIONS
PURSES_MOST = 100_000
"""Callers whose purses are kept ready; beyond it all are made anew. Chosen: ten times the keys of a large instance."""
MOST_OUTPUT_TOKENS = 2**40
"""Of all answers to one request: priced at a thousand currency units a million, still a number of 64 bits."""
BRACKET = ord("[")
_NO_PROMPTS = re.compile(rb'\[[ \n\r\t]*+[^"\[ \n\r\t]')
"""A list that begins with a token is one prompt: it is not read further."""
_decode_prompts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_choices = msgspec.json.Decoder(int | None).decode


class Answer(Protocol):
    """What is on its way to the caller."""

    @property
    def output_tokens(self) -> int:
        """Output so far."""
        ...


class Ticket(Record):
    """One admitted request: what `settle` needs of it. A Struct, as all that is made per request: it costs half."""

    reservation: Reservation
    caller: Caller
    request: InferenceRequest
    """As it is sent: its caller's caps may have given it an output limit."""
    choices: int
    headers: RateHeaders | None = None
    """What to tell the caller of its limits; None: nothing."""
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """What a request has used in the end, for the ledger. None is not known, or not priced."""

    gpu_s: float | None
    cost_nanos: int | None
    price_version: str | None


NO_BILL = Bill(None, None, None)


class Quota:
    """Every `reserve` that returns is followed by exactly one `settle`.

    Concurrency: event loop only; all meters of a caller are asked and taken in one turn, so a limit cannot be overrun
    by parallel callers (PAINS 5).
    """

    def __init__(self, meters: MeterFactory) -> None:
        self._meters = meters
        self._plan = TenancyPlan()
        self._keys: Sequence[KeyRecord] = ()
        self._spent: tuple[Spent, ...] = ()
        """As told last: meters that come later hear of it too."""
        self._levels: dict[tuple[Level, str], LimitSet] = {}
        self._purses: dict[KeyId, tuple[Caller, Purse]] = {}
        self._tickets: set[Ticket] = set()
        self._limit = 0
        self._tariffs: dict[str, Tariff] = {}
        """By model."""
        self._lengths: dict[str, OutputLengths] = {}
        self.speeds: dict[str, PoolSpeed] = {}
        """By pool."""
        self.budgets = BudgetWatch()
        self._clock = GpuClock()
        self._pools_of: dict[str, tuple[str, ...]] = {}
        self.refusals: dict[tuple[str, str], int] = {}
        """By level and limit."""

    @property
    def in_flight(self) -> int:
        """Admitted and not settled."""
        return len(self._tickets)

    # --- plans

    def use_meters(self, meters: MeterFactory) -> None:
        """Count by other meters, which hear what was spent; before the first plan."""
        self._meters = meters
        self.raise_spent(self._spent)

    def adopt(self, plan: GatewayPlan, keys: Sequence[KeyRecord], now_mono_s: float) -> None:
        """Put a plan's limits in force. What is in work goes on and stays counted; meters keep their counts."""
        self._limit = plan.limits.in_flight
        self._lengths = {model: self._lengths.get(model) or OutputLengths() for model in plan.models}
        self._adopt_speeds(plan)
        if plan.tenancy != self._plan or keys is not self._keys:  # most plans change endpoints, and nothing here
            self._plan, self._keys = plan.tenancy, keys
            self._adopt_tenancy(plan.tenancy, keys, now_mono_s)

    def _adopt_tenancy(self, tenancy: TenancyPlan, keys: Sequence[KeyRecord], now_mono_s: float) -> None:
        self._levels = dict(_levels(tenancy))
        self._tariffs = {price.model: Tariff(price, tenancy.price_version) for price in tenancy.prices}
        self._purses = {}
        own = (((Level.KEY, key.key_id), key.limits) for key in keys if key.limits.amounts)
        declared = (LimitId(*owner, unit) for owner, limits in (*self._levels.items(), *own) for unit in limits.amounts)
        self._meters.keep_only(frozenset(declared))
        self.budgets.adopt(
            self._meters.meter(LimitId(*owner, unit), limits.amounts[unit], now_mono_s)
            for level in Level
            for owner, limits in islice(
                (one for one in self._levels.items() if one[0][0] is level and BUDGETS.intersection(one[1].amounts)),
                max(tenancy.named_tenants, 1),
            )
            for unit in BUDGETS.intersection(limits.amounts)
        )
        for ticket in self._tickets:
            ticket.reservation.move_under(self.purse_of(ticket.caller, now_mono_s), now_mono_s)

    def raise_spent(self, spent: Iterable[Spent]) -> None:
        """Count at least what the ledger knows to have been spent."""
        self._spent = tuple(spent)
        for one in self._spent:
            self._meters.raise_spent(LimitId(one.level, one.name, one.unit), one.nanos, one.period_start_at)

    def _adopt_speeds(self, plan: GatewayPlan) -> None:
        speeds: dict[str, PoolSpeed] = {}
        for pool in plan.pools:
            known = self.speeds.get(pool.name)
            speed = speeds[pool.name] = known or PoolSpeed()
            speed.declare(
                prefill_tokens_per_s=pool.prefill_tokens_per_s,
                decode_tokens_per_s=pool.decode_tokens_per_s,
                devices=pool.devices,
            )
        self.speeds = speeds
        self._pools_of = {
            model: tuple(pool.name for pool in plan.pools if pool.model == model) for model in plan.models
        }

    def purse_of(self, caller: Caller, now_mono_s: float) -> Purse:
        """All that limits a caller, at every level."""
        known = self._purses.get(caller.key_id)
        if known is not None and known[0] is caller:
            return known[1]
        if known is not None and known[0] == caller:  # found anew by identity, after a plan that changed neither
            self._purses[caller.key_id] = (caller, known[1])
            return known[1]
        if len(self._purses) >= PURSES_MOST:
            self._purses.clear()
        purse = self._make_purse(caller, now_mono_s)
        self._purses[caller.key_id] = (caller, purse)
        return purse

    def _make_purse(self, caller: Caller, now_mono_s: float) -> Purse:
        owners = [(Level.GATEWAY, ""), (Level.TENANT, str(caller.tenant))]
        if caller.organisation is not None:
            owners.insert(1, (Level.ORGANISATION, caller.organisation))
        if caller.project is not None:
            owners.append((Level.PROJECT, f"{caller.tenant}/{caller.project}"))
        limits = [(owner, self._levels.get(owner, NO_LIMITS)) for owner in owners]
        limits.append(((Level.KEY, str(caller.key_id)), caller.limits))
        meters = [
            self._meters.meter(LimitId(*owner, unit), amount, now_mono_s)
            for owner, limit_set in limits
            for unit, amount in limit_set.amounts.items()
        ]
        return Purse(meters, tightest(limit_set.caps for _, limit_set in limits))

    # --- one request

    def fit(self, caller: Caller, request: InferenceRequest, now_mono_s: float) -> InferenceRequest:
        """Check a request against the caps of a single one; returned with an output limit, where it gave none and one
        is declared.

        Raises: RequestError INVALID_REQUEST, CONTEXT_TOO_LONG, BODY_TOO_LARGE or FORBIDDEN.
        """
        return self._fit(self.purse_of(caller, now_mono_s), caller, request)

    def _fit(self, purse: Purse, caller: Caller, request: InferenceRequest) -> InferenceRequest:
        if request.request_class not in caller.classes:
            allowed = ", ".join(sorted(caller.classes))
            message = f"this key may not send requests of class {request.request_class.value}; it may send: {allowed}"
            raise RequestError(ErrorCode.FORBIDDEN, message)
        caps = purse.caps
        if caps is None:
            return request
        check_caps(caps, request, choices_of(request))
        is_open = request.output_limit_tokens is None and request.dialect is not EMBEDDINGS
        return request if caps.output_tokens is None or not is_open else request.with_output_limit(caps.output_tokens)

    def reserve(
        self,
        caller: Caller,
        request: InferenceRequest,
        now_mono_s: float,
        resume: Callable[[], None] | None = None,
    ) -> Ticket | None:
        """Fit the request, and take what it may need from all meters of its caller or from none.

        Where a limit is shared with other processes and more of it may be had from them, the answer is None, and
        `resume` is called after the next exchange: reserve again then.

        Raises: RequestError SATURATED, RATE_LIMITED or QUOTA_EXHAUSTED, or as `fit`; then nothing was taken.
        """
        known = self._purses.get(caller.key_id)
        purse = known[1] if known is not None and known[0] is caller else self.purse_of(caller, now_mono_s)
        if purse.caps is not None or request.request_class not in caller.classes:
            request = self._fit(purse, caller, request)
        if len(self._tickets) >= self._limit:
            message = f"the gateway has {len(self._tickets)} requests in work, its limit (gateway.limits.in_flight)"
            raise RequestError(ErrorCode.SATURATED, message)
        fields = request.fields
        counts = "n" in fields or "best_of" in fields or request.dialect is COMPLETIONS
        choices = choices_of(request) if counts else 1
        limit = request.output_limit_tokens
        output_tokens = self._expected_output(request, purse, choices) if limit is None else limit * choices
        if output_tokens > MOST_OUTPUT_TOKENS:
            message = f"{choices} answers of up to {limit} tokens are more than can be counted; ask for less"
            raise RequestError(ErrorCode.INVALID_REQUEST, message, param="n")
        amounts = self._amounts(request, purse, output_tokens)
        if purse.meters:
            reserved = purse.try_reserve(amounts, now_mono_s)
            if isinstance(reserved, Shortage):
                if resume is not None and self._meters.await_share(reserved.meter, now_mono_s, resume):
                    return None
                if (outage := self._meters.find_outage()) is not None:
                    message = f"limits are shared with other gateways, and their store is out of reach: {outage}"
                    raise RequestError(ErrorCode.SATURATED, message, retry_after_s=1.0)
                limit_id = reserved.meter.limit_id
                where = (limit_id.level.value, limit_id.unit.value)
                self.refusals[where] = self.refusals.get(where, 0) + 1
                error = refusal(reserved, now_mono_s, self._plan.currency)
                error.lines = purse.headers.lines(now_mono_s)
                raise error
        else:
            reserved = Reservation(purse, amounts, now_mono_s)
        ticket = Ticket(reserved, caller, request, choices, purse.headers if purse.has_headers else None)
        self._tickets.add(ticket)
        return ticket

    def settle(
        self,
        ticket: Ticket,
        *,
        usage: TokenUsage,
        output_events: int,
        pool: str | None,
        code: ErrorCode | None,
        is_dispatched: bool,
        now_mono_s: float,
    ) -> Bill:
        """Give back what was not used, charge what was used beyond; the bill is for the ledger.

        1. Refused, or withdrawn before an engine was asked: nothing was used.
        2. Failed without any output: the engine's fault, and nobody's cost.
        3. Otherwise as the engine counted; where it did not, the output that the caller received and the input as
           estimated.
        """
        self._tickets.discard(ticket)
        request, reservation = ticket.request, ticket.reservation
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        if output_tokens is None:
            output_tokens = output_events
        elif code is None and request.output_limit_tokens is None:
            self._learn(request, output_tokens // ticket.choices)
        if code is not None and not _is_charged(code, output_tokens, is_dispatched=is_dispatched):
            reservation.settle(no_amounts(), now_mono_s)
            return NO_BILL
        if input_tokens is None:
            input_tokens = request.estimated_input_tokens
        cached = usage.cached_input_tokens or 0
        gpu_s = None
        if pool is not None:
            self._clock.count(pool, input_tokens - cached, output_tokens)
            speed = self.speeds.get(pool)
            if speed is not None and speed.decode_s is not None:
                gpu_s = speed.gpu_s(input_tokens=input_tokens, cached_input_tokens=cached, output_tokens=output_tokens)
        tariff = self._tariffs.get(request.requested_model)
        cost = 0 if tariff is None else tariff.cost_nanos(input_tokens, cached, output_tokens, gpu_s)
        if reservation.purse.meters or reservation.late_slots:
            gpu_us = 0 if gpu_s is None else round(gpu_s * MICROSECONDS)
            reservation.settle([1, input_tokens, output_tokens, gpu_us, 0, 0, 0, 0, cost, cost], now_mono_s)
        if gpu_s is None and tariff is None:
            return NO_BILL
        return Bill(gpu_s, None if tariff is None else cost, None if tariff is None else tariff.version)

    def quote(self, model: str, input_tokens: int, cached_input_tokens: int, output_tokens: int) -> int:
        """What so much would cost by the price table, without GPU time; 0 where the model has no price."""
        tariff = self._tariffs.get(model)
        return 0 if tariff is None else tariff.cost_nanos(input_tokens, cached_input_tokens, output_tokens, None)

    def sweep(self, busy: Mapping[str, int], now_mono_s: float) -> None:
        """Look at what time does. `busy`: how many replicas of each pool have work now.

        An answer without a limit of its own that has become longer than was reserved holds half as much again, so that
        others see it coming.
        """
        self._clock.tick(busy, self.speeds, now_mono_s)
        self.budgets.look(now_mono_s)
        for ticket in self._tickets:
            reservation, answer = ticket.reservation, ticket.answer
            if answer is None or ticket.request.output_limit_tokens is not None or not reservation.purse.meters:
                continue
            output_tokens = answer.output_tokens
            if output_tokens > reservation.expected_output_tokens:
                expected = output_tokens + output_tokens // 2
                reservation.grow(self._amounts(ticket.request, reservation.purse, expected), now_mono_s)

    def iter_meters(self, keys: Iterable[KeyRecord], now_mono_s: float) -> Iterator[Meter]:
        """The meter of every declared limit, and of every limit of `keys`."""
        own = (((Level.KEY, str(key.key_id)), key.limits) for key in keys if key.limits.amounts)
        for owner, limits in (*self._levels.items(), *own):
            for unit, amount in limits.amounts.items():
                yield self._meters.meter(LimitId(*owner, unit), amount, now_mono_s)

    # --- inside

    def _amounts(self, request: InferenceRequest, purse: Purse, output_tokens: int) -> Amounts:
        """What a request may need, by INDEX."""
        gpu_us = cost = 0
        if purse.needs_bill:
            model, input_tokens = request.requested_model, request.estimated_input_tokens
            gpu_s = None
            for pool in self._pools_of.get(model, ()):
                speed = self.speeds[pool]
                if speed.decode_s is not None:
                    found = speed.gpu_s(input_tokens=input_tokens, cached_input_tokens=0, output_tokens=output_tokens)
                    if found is not None and (gpu_s is None or found > gpu_s):
                        gpu_s = found
            if gpu_s is not None:
                gpu_us = round(gpu_s * MICROSECONDS)
            tariff = self._tariffs.get(model)
            if tariff is not None:
                cost = tariff.cost_nanos(input_tokens, 0, output_tokens, gpu_s)
        request_class = request.request_class
        return [
            1,
            request.estimated_input_tokens,
            output_tokens,
            gpu_us,
            1,
            1 if request_class is INTERACTIVE else 0,
            1 if request.is_stream else 0,
            1 if request_class is OFFLINE else 0,
            cost,
            cost,
        ]

    def _expected_output(self, request: InferenceRequest, purse: Purse, choices: int) -> int:
        """Of a request without a limit; not more than could ever be reserved, so that small limits serve it too."""
        lengths = self._lengths.get(request.requested_model)
        if lengths is None or not purse.meters or request.dialect is EMBEDDINGS:
            return 0
        expected, most = lengths.expected_tokens * choices, purse.most_output_tokens
        return expected if most is None or expected < most else most

    def _learn(self, request: InferenceRequest, output_tokens: int) -> None:
        lengths = self._lengths.get(request.requested_model)
        if lengths is not None:
            lengths.learn(output_tokens)


def choices_of(request: InferenceRequest) -> int:
    """How many answers the request asks for: `n` or `best_of`, of each prompt of completions.

    What is no number was refused at the entry.
    """
    fields = request.fields
    choices = max(_number(fields.get("n")), _number(fields.get("best_of")))
    return choices * _prompts(fields.get("prompt")) if request.dialect is COMPLETIONS else choices


def _number(raw: msgspec.Raw | None) -> int:
    try:
        return 1 if raw is None else max(_decode_choices(raw) or 1, 1)
    except UNDECODABLE:
        return 1


def _prompts(raw: msgspec.Raw | None) -> int:
    """Texts, or lists of tokens; one list of tokens is one prompt."""
    if raw is None or memoryview(raw)[0] != BRACKET or _NO_PROMPTS.match(raw) is not None:
        return 1
    try:
        prompts = _decode_prompts(raw)
    except UNDECODABLE as error:
        message = "field prompt is nested too deeply"
        raise RequestError(ErrorCode.INVALID_REQUEST, message, param="prompt") from error
    return len(prompts) if prompts and memoryview(prompts[0])[0] in b'"[' else 1


def _levels(plan: TenancyPlan) -> Iterator[tuple[tuple[Level, str], LimitSet]]:
    yield (Level.GATEWAY, ""), plan.limits
    for organisation in plan.organisations:
        yield (Level.ORGANISATION, organisation.name), organisation.limits
    for tenant in plan.tenants:
        yield (Level.TENANT, tenant.name), tenant.allowance.limits
        for project in tenant.projects:
            yield (Level.PROJECT, f"{tenant.name}/{project.name}"), project.limits


def _is_charged(code: ErrorCode, output_tokens: int, *, is_dispatched: bool) -> bool:
    outcome = ERRORS[code].outcome
    if not is_dispatched or outcome is Outcome.REJECTED or outcome is Outcome.EVICTED:
        return False
    return outcome is not Outcome.FAILED or output_tokens > 0
