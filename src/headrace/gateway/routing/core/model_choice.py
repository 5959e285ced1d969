"""The choice among models that one name stands for: latency, price and quality of each, as seconds; lowest first.

Pure; `model_chooser.py` makes the offers. Endpoints of one model are compared by `decision.py`: an offer is a model at
the endpoint that would be picked for it.
"""

from collections.abc import Sequence

import msgspec

from headrace.declaration.auto_plan import AutoModelPlan
from headrace.gateway.routing.core.candidate import (
    FIRST_GUESS_FIXED_S,
    FIRST_GUESS_TPOT_S,
    Candidate,
    prefill_work,
)
from headrace.gateway.routing.core.learning import LineEstimate

STALE_S = 60.0
"""A model that gave no answer for so long is tried again: what made it slow may be over. Chosen, as for endpoints."""
SCALE_TOKENS = 100.0
"""Of answers, for the line through them."""


class Offer(msgspec.Struct, kw_only=True, eq=False):
    """One model for one request. Units: seconds, tokens, billionths of the currency."""

    model: str
    endpoint: str
    """That would be picked for it now."""
    quality: float
    input_tokens: int
    """Estimated, as its own engines have counted so far."""
    wait_s: float
    """In the gateway's queue."""
    ttft_s: float
    """After that."""
    tpot_s: float
    output_tokens: float
    """Expected."""
    price_nanos: int
    """Expected; a model without a price costs nothing."""
    cached_tokens: int = 0
    is_last_resort: bool = False
    """All that it has are ejected endpoints."""
    is_trial: bool = False
    """Nothing is known of its pace lately: it is taken to be as fast as the fastest."""
    parts_s: dict[str, float] = {}
    """Weighted seconds by reason."""
    placing: object | None = None
    """What routing has found out for it already, prompt and all."""
    split_pool: str | None = None
    """Where that was for one pool of a split."""

    @property
    def latency_s(self) -> float:
        """From now to the last token."""
        return self.wait_s + self.ttft_s + self.tpot_s * self.output_tokens

    @property
    def cost_s(self) -> float:
        return sum(self.parts_s.values())


class ModelChoice(msgspec.Struct, kw_only=True, eq=False):
    """The choice made for one request, which may still go to the next offer (`InferenceRequest.choice`)."""

    plan: AutoModelPlan
    offers: list[Offer]
    """In the order in which they are to be tried."""
    left_out: list[tuple[str, str]] = []
    """Models that cannot take the request, and why."""
    chosen: int = 0
    """Place of the offer that it is at."""

    @property
    def offer(self) -> Offer:
        return self.offers[self.chosen]


class Predicted(msgspec.Struct, kw_only=True, eq=False):
    """Seconds to the first token, and of each further one."""

    ttft_s: float
    tpot_s: float
    fixed_s: float
    """What of `ttft_s` no prompt is the cause of."""


class ModelPace:
    """When a model last answered, and how long its whole answers take: they show no first token, so that pools learn
    from streams alone. And how often it was chosen.
    """

    __slots__ = ("_streamed_mono_s", "_told_mono_s", "_whole", "choices", "tried_mono_s")

    def __init__(self) -> None:
        self._whole = LineEstimate(fixed=FIRST_GUESS_FIXED_S, slope=FIRST_GUESS_TPOT_S, scale=SCALE_TOKENS)
        """Seconds by output tokens."""
        self._told_mono_s: float | None = None
        """When a whole answer last came."""
        self._streamed_mono_s: float | None = None
        self.tried_mono_s: float | None = None
        """When it was last chosen on trial."""
        self.choices: dict[str, int] = {}
        """How often it was chosen, by the name that it was chosen for."""

    def may_be_tried(self, now_mono_s: float) -> bool:
        """Whether nothing is known of it lately, and nobody is finding out."""
        known = (self._told_mono_s, self._streamed_mono_s, self.tried_mono_s)
        return not any(_is_fresh(at_mono_s, now_mono_s) for at_mono_s in known)

    def streamed(self, now_mono_s: float) -> None:
        """A stream was whole: its pool has learned from it."""
        self._streamed_mono_s = now_mono_s

    def told(self, took_s: float, output_tokens: int, now_mono_s: float) -> None:
        """A whole answer of so many tokens has come so many seconds after it was asked for."""
        if not _is_fresh(self._told_mono_s, now_mono_s):
            slope = min(FIRST_GUESS_TPOT_S, took_s / (output_tokens + 1))
            self._whole = LineEstimate(fixed=took_s - slope * output_tokens, slope=slope, scale=SCALE_TOKENS)
        self._whole.observe(float(output_tokens), took_s)
        self._told_mono_s = now_mono_s

    def correct(self, seen: Predicted, now_mono_s: float) -> Predicted:
        """What its pool predicts or, where only whole answers came lately, what those say."""
        if _is_fresh(self._streamed_mono_s, now_mono_s) or not _is_fresh(self._told_mono_s, now_mono_s):
            return seen
        line = self._whole
        return Predicted(ttft_s=line.fixed + seen.ttft_s - seen.fixed_s, tpot_s=line.slope, fixed_s=line.fixed)


def _is_fresh(at_mono_s: float | None, now_mono_s: float) -> bool:
    return at_mono_s is not None and now_mono_s - at_mono_s <= STALE_S


def predict(candidate: Candidate, *, input_tokens: float, held_tokens: float, now_mono_s: float) -> Predicted:
    """Return what a request would take at an endpoint by what is known of it and its pool.

    An endpoint that has not brought the first token of the prompt it works on for longer than that needs longer still.
    """
    uncached = max(1.0, input_tokens - held_tokens * candidate.trust)
    ahead = candidate.ahead_tokens(now_mono_s) if candidate.prefill_tokens else 0.0
    line = candidate.pool.ttft
    ttft_s = candidate.factor * line.predict(ahead + prefill_work(uncached, input_tokens))
    if candidate.prefill_tokens:
        ttft_s = max(ttft_s, now_mono_s - candidate.head_mono_s)
    tpot_s = candidate.pool.tpot.predict(candidate.in_flight + candidate.foreign + 1)
    return Predicted(ttft_s=ttft_s, tpot_s=tpot_s, fixed_s=candidate.factor * line.fixed)


def rank(offers: Sequence[Offer], plan: AutoModelPlan, *, is_offline: bool) -> list[Offer]:
    """Return the offers in the order in which they are to be tried, with their costs.

    1. Models of which only ejected endpoints are left come last.
    2. cheapest, best: those predicted to keep `ttft_s` come first, in their order of price or quality; of the others
       the soonest first.
    3. fastest: in the order of latency. balanced, and equals of all: in the order of the weighted sum.
    """
    dearest = max((offer.price_nanos for offer in offers), default=0)
    highest = max((offer.quality for offer in offers), default=0.0)
    latency_weight = plan.offline_latency_weight if is_offline else plan.latency_weight
    for offer in offers:
        offer.parts_s = {
            "latency": latency_weight * offer.latency_s,
            "price": plan.price_weight * offer.price_nanos / dearest if dearest else 0.0,
            "quality": plan.quality_weight * (highest - offer.quality),
        }
    return sorted(offers, key=lambda offer: (offer.is_last_resort, *_preference(offer, plan), offer.cost_s))


def keeps_ttft(offer: Offer, plan: AutoModelPlan) -> bool:
    """Whether its first token is predicted to come in time."""
    return plan.ttft_s is None or offer.wait_s + offer.ttft_s <= plan.ttft_s


def _preference(offer: Offer, plan: AutoModelPlan) -> tuple[float, ...]:
    if plan.prefer == "fastest":
        return (offer.latency_s,)
    if plan.prefer == "balanced":
        return ()
    if not keeps_ttft(offer, plan):
        return (1.0, offer.wait_s + offer.ttft_s)
    return (0.0, float(offer.price_nanos) if plan.prefer == "cheapest" else -offer.quality)


def reason_of(offer: Offer, plan: AutoModelPlan) -> str:
    """Why the first of the ranked offers is the first, for a person."""
    if offer.is_last_resort:
        return "nothing else is left: ejected endpoints are tried"
    words = {
        "balanced": "lowest sum of latency, price and quality",
        "fastest": "predicted to be done first",
        "cheapest": "lowest price",
        "best": "highest quality",
    }
    reason = words[plan.prefer]
    if plan.ttft_s is not None:
        kept = f"of those predicted to keep a first token within {plan.ttft_s:g} s"
        reason = f"{reason} {kept}" if keeps_ttft(offer, plan) else f"none keeps {plan.ttft_s:g} s: the soonest"
    return f"{reason}; on trial, as nothing is known of its pace lately" if offer.is_trial else reason
