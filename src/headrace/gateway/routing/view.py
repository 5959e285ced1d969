"""Decisions and counts put into words: what `headrace route explain` and `headrace cache` show."""

import os
from collections.abc import Sequence

from headrace.domain.request import InferenceRequest
from headrace.domain.routing_status import CandidateView, EndpointCache, HitCounts, RouteExplanation, RoutingStatus
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.routing.core.tallies import Tally
from headrace.gateway.routing.placer import Placer

SHOWN_FAMILIES = 50
"""Of one worker, those with most input tokens."""


def explain_choice(
    placer: Placer,
    request: InferenceRequest,
    usable: Sequence[Endpoint],
    filtered: Sequence[CandidateView],
    reason: str,
) -> RouteExplanation:
    """Say which of `usable` endpoints would be picked and what each costs; `filtered` are those left out before."""
    if not usable:
        return _explanation(request, picked=None, reason=reason, candidates=filtered, blocks=0, output_tokens=None)
    placing, decision = placer.explain(request, usable)
    chain, view = placing.chain, decision.view
    rows: list[CandidateView] = []
    places = {candidate.bit: place for place, candidate in enumerate(view.candidates)}
    braked = {candidate.bit for candidate in decision.braked}
    for endpoint in usable:
        candidate = placer.candidate_of(endpoint)
        assert candidate is not None
        place = places.get(candidate.bit)
        if place is None:
            is_braked = candidate.bit in braked
            rows.append(
                CandidateView(
                    endpoint=endpoint.endpoint_id,
                    pool=endpoint.plan.name,
                    outcome="braked" if is_braked else "not-sampled",
                    reason="far more in flight than the mean" if is_braked else "not among those looked at",
                    in_flight=candidate.in_flight + candidate.foreign,
                )
            )
            continue
        uncached = view.uncached_tokens[place]
        rows.append(
            CandidateView(
                endpoint=endpoint.endpoint_id,
                pool=endpoint.plan.name,
                outcome="picked" if candidate is decision.picked else "scored",
                in_flight=candidate.in_flight + candidate.foreign,
                queued_tokens=round(view.ahead_tokens[place]),
                cached_tokens=round(placing.input_tokens - uncached),
                uncached_tokens=round(uncached),
                speed_factor=round(candidate.factor, 3),
                cost_s=decision.totals[place],
                parts_s={kind: costs[place] for kind, costs in decision.parts.items()},
            )
        )
    rows.sort(key=lambda row: (row.outcome != "picked", row.cost_s is None, row.cost_s or 0.0))
    return _explanation(
        request,
        picked=decision.picked.endpoint_id,
        reason=reason,
        candidates=[*rows, *filtered],
        blocks=0 if chain is None else len(chain.names),
        output_tokens=round(placing.output_tokens),
        input_tokens=round(placing.input_tokens),
    )


def _explanation(
    request: InferenceRequest,
    *,
    picked: str | None,
    reason: str,
    candidates: Sequence[CandidateView],
    blocks: int,
    output_tokens: int | None,
    input_tokens: int | None = None,
) -> RouteExplanation:
    return RouteExplanation(
        worker_pid=os.getpid(),
        model=request.requested_model,
        request_class=request.request_class.value,
        tenant=request.tenant,
        input_tokens=request.estimated_input_tokens if input_tokens is None else input_tokens,
        blocks=blocks,
        output_tokens=output_tokens,
        picked=picked,
        reason=reason,
        candidates=tuple(candidates),
    )


def routing_status(placer: Placer) -> RoutingStatus:
    """This worker's counts since it started."""
    tallies = placer.tallies
    families = sorted(tallies.by_family.items(), key=lambda item: -item[1].input_tokens)[:SHOWN_FAMILIES]
    return RoutingStatus(
        workers=1,
        tenants=tuple(_counts(model, tenant, tally) for (model, tenant), tally in tallies.by_tenant.items()),
        families=tuple(_counts(model, f"{name:016x}"[:8], tally) for (model, name), tally in families),
        endpoints=tuple(
            EndpointCache(
                endpoint=endpoint.endpoint_id,
                model=endpoint.plan.model,
                blocks=len(candidate.shelf.sizes),
                held_tokens=round(candidate.shelf.held / bytes_per_token),
                capacity_tokens=round(candidate.shelf.capacity / bytes_per_token),
                trust_ratio=round(candidate.trust, 3),
                requests=candidate.claims,
                input_tokens=candidate.input_tokens,
                cached_tokens=candidate.hit_tokens,
            )
            for endpoint, candidate, bytes_per_token in placer.known()
        ),
    )


def _counts(model: str, name: str, tally: Tally) -> HitCounts:
    return HitCounts(
        model=model,
        name=name,
        requests=tally.requests,
        input_tokens=tally.input_tokens,
        cached_tokens=tally.cached_tokens,
        expected_tokens=round(tally.expected_tokens),
    )
