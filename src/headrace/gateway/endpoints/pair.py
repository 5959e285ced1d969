"""A prefill and a decode endpoint chosen for one request, with what is expected of them."""

from collections.abc import Callable
from dataclasses import dataclass

from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.handover.core.tickets import SpentTickets
from headrace.gateway.handover.report import HandoverReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPair:
    """Made by routing, carried out by forwarding."""

    prefill: Endpoint
    decode: Endpoint
    input_tokens: float
    prefill_s: float
    """Until prefill's answer, its queue included."""
    queue_ratio: float
    """Share of that which is queue, as predicted."""
    transfer_s: float
    decode_s: float
    """Decode's queue and first step."""
    answer_s: float | None
    """The longest answer that the request may have, three times over: of one that is not streamed nothing shows before
    it is whole. None: it has no limit."""
    bound_s: float
    """What a step may be late."""
    spent: SpentTickets
    report: Callable[["ChosenPair", HandoverReport], None]
    """Called once, at the end."""
