"""`x-headrace-route`: the explanation of a choice as one header line, for operators who ask with an admin key."""

import msgspec

from headrace.domain.routing_status import CandidateView, ModelView, RouteExplanation

ASKS = b"x-headrace-explain"
"""Of a request: its value is an admin key."""
SHOWN_CANDIDATES = 8
"""Clients bound their heads to some kilobytes; the cheapest come first."""


def route_line(found: RouteExplanation) -> bytes:
    """The header line, with its end: what was picked when the request came, and what each candidate would have cost."""
    told: dict[str, object] = {
        "picked": found.picked,
        "reason": found.reason,
        "input_tokens": found.input_tokens,
        "blocks": found.blocks,
        "candidates": [_shown(each) for each in found.candidates[:SHOWN_CANDIDATES]],
        "left_out": max(0, len(found.candidates) - SHOWN_CANDIDATES),
    }
    if found.models:
        told["requested_model"] = found.requested_model
        told["models"] = [_shown_model(each) for each in found.models[:SHOWN_CANDIDATES]]
    text = msgspec.json.encode(told).decode()
    return b"x-headrace-route: %b\r\n" % text.encode("ascii", "backslashreplace")


def _shown(each: CandidateView) -> dict[str, object]:
    if each.cost_s is None:
        return {"endpoint": each.endpoint, "outcome": each.outcome, "reason": each.reason}
    return {
        "endpoint": each.endpoint,
        "outcome": each.outcome,
        "cost_s": round(each.cost_s, 6),
        "parts_s": {kind: round(cost_s, 6) for kind, cost_s in each.parts_s.items()},
        "cached_tokens": each.cached_tokens,
        "in_flight": each.in_flight,
    }


def _shown_model(each: ModelView) -> dict[str, object]:
    if each.cost_s is None:
        return {"model": each.model, "outcome": each.outcome, "reason": each.reason}
    return {
        "model": each.model,
        "outcome": each.outcome,
        "reason": each.reason,
        "cost_s": round(each.cost_s, 6),
        "parts_s": {reason: round(cost_s, 6) for reason, cost_s in each.parts_s.items()},
        "price_nanos": each.price_nanos,
    }
