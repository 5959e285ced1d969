"""A choice among models put into words, for `headrace route explain` and the debug header."""

import os

import msgspec

from headrace.domain.request import InferenceRequest
from headrace.domain.routing_status import ModelView, RouteExplanation
from headrace.gateway.routing.core.model_choice import ModelChoice, Offer, reason_of

UNTRIED = "nothing is known of its pace lately: taken to be as fast as the fastest"


def request_for(request: InferenceRequest, model: str) -> InferenceRequest:
    """The request as one for `model`, to look and not to send: its body stays as it is."""
    return msgspec.structs.replace(request, requested_model=model, placing=None)


def with_models(found: RouteExplanation, choice: object) -> RouteExplanation:
    """Add which models there were to choose from."""
    if not isinstance(choice, ModelChoice):
        return found
    rows = [_row(offer, choice, place) for place, offer in enumerate(choice.offers)]
    rows += [ModelView(model=model, outcome="filtered", reason=reason) for model, reason in choice.left_out]
    plan = choice.plan
    return msgspec.structs.replace(found, requested_model=plan.name, prefer=plan.prefer, models=tuple(rows))


def nothing_picked(request: InferenceRequest, reason: str) -> RouteExplanation:
    """No model could take the request."""
    return RouteExplanation(
        worker_pid=os.getpid(),
        model=request.requested_model,
        request_class=request.request_class.value,
        tenant=request.tenant,
        input_tokens=request.estimated_input_tokens,
        blocks=0,
        output_tokens=None,
        picked=None,
        reason=reason,
        candidates=(),
    )


def _row(offer: Offer, choice: ModelChoice, place: int) -> ModelView:
    is_picked = place == choice.chosen
    return ModelView(
        model=offer.model,
        outcome="picked" if is_picked else "scored",
        reason=reason_of(offer, choice.plan) if is_picked else UNTRIED if offer.is_trial else "",
        endpoint=offer.endpoint,
        quality=offer.quality,
        wait_s=offer.wait_s,
        ttft_s=offer.ttft_s,
        latency_s=offer.latency_s,
        price_nanos=offer.price_nanos,
        cached_tokens=offer.cached_tokens,
        cost_s=offer.cost_s,
        parts_s=offer.parts_s,
    )
