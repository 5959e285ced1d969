"""Chooses the model where the caller's word stands for several (`auto_models`): asks what each would take and cost.

Hard constraints first: what the caller may use, path, regions, engines that can do what is asked, context, price. Then
`core/model_choice.py` ranks what is left. Made anew for each plan; what was learned of paces stays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from headrace.declaration.auto_plan import AutoCandidatePlan, AutoModelPlan
from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import ApiDialect, InferenceRequest, RequestClass
from headrace.domain.routing_status import RouteExplanation
from headrace.domain.tenant import Caller
from headrace.gateway.routing.context_fit import is_one_prompt, longest_context, needed_tokens
from headrace.gateway.routing.core.model_choice import ModelChoice, ModelPace, Offer, predict, rank
from headrace.gateway.routing.model_view import nothing_picked, request_for, with_models
from headrace.gateway.routing.placement import Placing
from headrace.gateway.routing.placer import Placer
from headrace.gateway.routing.router import Router

MILLION = 1_000_000
Quote = Callable[[str, int, int, int], int]
"""Model, input tokens, those of them that are cached, output tokens -> billionths of the currency."""
WaitOf = Callable[[str, InferenceRequest, float, float], float]
"""Model, request, weight of its tenant, now -> seconds that it would wait in the gateway's queue."""
TokensOf = Callable[[str, int], int]
"""Model, bytes of a prompt -> tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """What the choice needs of other steps."""

    quote: Quote
    wait_of: WaitOf
    tokens_of: TokensOf


@dataclass(frozen=True, slots=True)
class Look:
    """What was found of one model for one request."""

    candidate: AutoCandidatePlan
    placing: Placing
    asked: InferenceRequest
    context_tokens: int | None
    """The longest of the endpoints that it could go to; None: one of them may have any."""
    is_usable: bool
    """Not all that is left are ejected endpoints."""

    @property
    def fits(self) -> bool:
        """Whether the request is estimated to fit into that."""
        return self.context_tokens is None or needed_tokens(self.asked) <= self.context_tokens


class ModelChooser:
    """Concurrency: event loop only."""

    def __init__(
        self,
        plans: Sequence[AutoModelPlan],
        router: Router,
        placer: Placer,
        paces: dict[str, ModelPace],
        asks: Asks,
    ) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._router = router
        self._placer = placer
        self._paces = paces
        """By model; kept from plan to plan."""
        self._asks = asks

    def __contains__(self, name: str) -> bool:
        return name in self._plans

    def visible(self, caller: Caller | None) -> list[str]:
        """The names that a caller may ask for; None: all."""
        return [name for name, plan in self._plans.items() if _allowed(plan, caller)]

    def visible_to(self, name: str, caller: Caller | None) -> bool:
        """Whether a caller may ask for the name: for itself, or for one of its models."""
        return bool(_allowed(self._plans[name], caller))

    def choose(self, request: InferenceRequest, caller: Caller | None, *, explains: bool = False) -> None:
        """Make the request one for the best of the models that it may go to; it keeps the others, for failures.

        `explains`: nothing is to be sent, and nothing counts as tried.
        Raises: RequestError where none can take the request, saying why of each.
        """
        plan = self._plans[request.requested_model]
        allowed = _allowed(plan, caller)
        now = monotonic()
        looks: list[Look] = []
        left_out: dict[str, RequestError] = {}
        for candidate in plan.candidates:
            if candidate.model not in allowed:
                continue
            try:
                looks.append(self._look(request, candidate))
            except RequestError as error:
                left_out[candidate.model] = error
        looks = _with_context(looks, left_out)
        output_tokens = _output_tokens(request, [look.placing for look in looks])
        weight = 1.0 if caller is None else caller.weight
        offers = [self._offer(look, output_tokens, weight, now) for look in looks]
        self._keep_price(plan, offers, left_out)
        reasons = [(model, error.message) for model, error in left_out.items()]
        if not offers:
            if explains:
                request.choice = ModelChoice(plan=plan, offers=[], left_out=reasons)
            raise _nothing_offered(plan.name, left_out)
        self._try_stale(offers, now)
        ranked = rank(offers, plan, is_offline=request.request_class is RequestClass.OFFLINE)
        best = ranked[0]
        if not explains:
            pace = self._pace(best.model)
            pace.choices[plan.name] = pace.choices.get(plan.name, 0) + 1
            if best.is_trial:
                pace.tried_mono_s = now
        request.choice = ModelChoice(plan=plan, offers=ranked, left_out=reasons)
        request.become(best.model, best.input_tokens)
        request.placing, request.split_pool = best.placing, best.split_pool

    def explain(self, request: InferenceRequest, caller: Caller | None) -> RouteExplanation:
        """Say what `choose` and the router would do with the request now, and why; nothing is held.

        Raises: RequestError where the request itself is at fault.
        """
        try:
            self.choose(request, caller, explains=True)
        except RequestError as error:
            if request.choice is None or error.code not in (ErrorCode.NO_READY_ENDPOINT, ErrorCode.FORBIDDEN):
                raise
            return with_models(nothing_picked(request, error.message), request.choice)
        return self._router.explain(request)

    def learn(self, request: InferenceRequest, took_s: float, output_tokens: int) -> None:
        """A request was answered whole at the first attempt, in so many seconds after it was sent."""
        choice = request.choice
        if not isinstance(choice, ModelChoice):
            return
        pace, now = self._pace(choice.offer.model), monotonic()
        if request.is_stream:
            pace.streamed(now)
        else:
            pace.told(took_s, output_tokens, now)

    def _look(self, request: InferenceRequest, candidate: AutoCandidatePlan) -> "Look":
        """Raises: RequestError where the model cannot take the request now."""
        asked = request_for(request, candidate.model)
        asked.estimated_input_tokens = self._asks.tokens_of(candidate.model, request.prompt_bytes)
        endpoints = self._router.offered(asked)
        if not endpoints:
            raise self._router.refusal(asked)
        self._placer.pick(asked, endpoints)
        placing = asked.placing
        assert isinstance(placing, Placing)
        return Look(candidate, placing, asked, longest_context(endpoints), endpoints[0].is_usable)

    def _offer(self, look: "Look", output_tokens: float, weight: float, now: float) -> Offer:
        candidate, placing, asked = look.candidate, look.placing, look.asked
        picked, held_tokens = placing.picked, placing.held_tokens
        assert picked is not None
        model, input_tokens = candidate.model, asked.estimated_input_tokens
        seen = predict(picked, input_tokens=placing.input_tokens, held_tokens=held_tokens, now_mono_s=now)
        seen = self._pace(model).correct(seen, now)
        cached_tokens = round(held_tokens * picked.trust)
        return Offer(
            model=model,
            endpoint=picked.endpoint_id,
            quality=candidate.quality,
            input_tokens=input_tokens,
            wait_s=self._asks.wait_of(model, asked, weight, now),
            ttft_s=seen.ttft_s,
            tpot_s=seen.tpot_s,
            output_tokens=output_tokens,
            price_nanos=self._asks.quote(model, input_tokens, cached_tokens, round(output_tokens)),
            cached_tokens=cached_tokens,
            is_last_resort=not look.is_usable,
            placing=placing,
            split_pool=asked.split_pool,
        )

    @staticmethod
    def _keep_price(plan: AutoModelPlan, offers: list[Offer], left_out: dict[str, RequestError]) -> None:
        most = plan.max_nanos_per_million
        if most is None:
            return
        for offer in list(offers):
            tokens = offer.input_tokens + offer.output_tokens
            if offer.price_nanos * MILLION > most * tokens:
                offers.remove(offer)
                per_million = offer.price_nanos / max(1.0, tokens) / 1000
                message = f"expected to cost {per_million:.6g} per million tokens, above max_price_per_million"
                left_out[offer.model] = RequestError(ErrorCode.FORBIDDEN, message)

    def _try_stale(self, offers: Sequence[Offer], now: float) -> None:
        """Who gave no answer lately is taken to be as fast as the fastest, for one request: it may be."""
        fastest = min(offers, key=lambda offer: offer.ttft_s + offer.tpot_s * offer.output_tokens)
        for offer in offers:
            is_slower = offer.ttft_s > fastest.ttft_s or offer.tpot_s > fastest.tpot_s
            if is_slower and offer is not fastest and self._pace(offer.model).may_be_tried(now):
                offer.is_trial = True
                offer.ttft_s = min(offer.ttft_s, fastest.ttft_s)
                offer.tpot_s = min(offer.tpot_s, fastest.tpot_s)

    def _pace(self, model: str) -> ModelPace:
        pace = self._paces.get(model)
        if pace is None:
            pace = self._paces[model] = ModelPace()
        return pace


def _with_context(looks: list[Look], left_out: dict[str, RequestError]) -> list[Look]:
    """Return the models whose context holds what the request is estimated to need. Where none does, those of the
    longest: its engine counts, and says so. Where only ejected endpoints do, all: the estimate may be wrong.
    """
    if not looks or all(look.fits for look in looks) or not is_one_prompt(looks[0].asked):
        return looks
    kept = [look for look in looks if look.fits]
    if not kept:
        longest = max(look.context_tokens or 0 for look in looks)
        kept = [look for look in looks if look.context_tokens == longest]
    elif not any(look.is_usable for look in kept):
        return looks
    for look in looks:
        if look not in kept:
            needed, held = needed_tokens(look.asked), look.context_tokens
            message = f"the request needs about {needed} tokens, and its context holds {held}"
            left_out[look.candidate.model] = RequestError(ErrorCode.CONTEXT_TOO_LONG, message)
    return kept


def _allowed(plan: AutoModelPlan, caller: Caller | None) -> frozenset[str]:
    """Of the models that the name stands for, those that a caller may be given: all, where it may use the name."""
    known = frozenset(candidate.model for candidate in plan.candidates)
    if caller is None or caller.models is None or plan.name in caller.models:
        return known
    return known & caller.models


def _output_tokens(request: InferenceRequest, placings: Sequence[Placing]) -> float:
    """Expected, the same for all models: what their answers have been on the whole."""
    if not placings or request.dialect is ApiDialect.EMBEDDINGS:
        return 0.0
    expected = sum(placing.model.output_tokens for placing in placings) / len(placings)
    limit = request.output_limit_tokens
    return expected if limit is None else min(expected, float(limit))


def _nothing_offered(name: str, left_out: Mapping[str, RequestError]) -> RequestError:
    """The kindest of the reasons: what waiting can cure comes before what the request itself is at fault for."""
    errors = list(left_out.values())
    first = next((error for error in errors if error.code is ErrorCode.NO_READY_ENDPOINT), errors[0])
    why = "; ".join(f"{model}: {error.message}" for model, error in left_out.items())
    message = f"none of the models that {name!r} stands for can take the request: {why}"
    return RequestError(first.code, message, retry_after_s=first.retry_after_s, figures=first.figures)
