"""An engine refuses what another would take: a prompt that is too long for its context, an API that it does not have.

Nobody is to blame, so that nothing is taken from the retry budget; each such step leaves out all endpoints that would
say the same, so that there are few. Counterpart: `delivery.py`, whose attempt was refused.
"""

import asyncio
from typing import Protocol

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.handed_over import Leaving
from headrace.gateway.forwarding.hedge import Hedge
from headrace.gateway.forwarding.ports import ForwardingSettings, Meters
from headrace.gateway.http.exchange import Exchange

UNFIT = frozenset({ErrorCode.CONTEXT_TOO_LONG, ErrorCode.ROUTE_NOT_FOUND})
"""What is true of an endpoint, rather than of the request alone."""


class Refused(Protocol):
    """Whose attempt was refused: the delivery, that attempt left already."""

    request: InferenceRequest
    exchange: Exchange
    settings: ForwardingSettings
    tried: tuple[Endpoint, ...]
    hedge: Hedge | None
    handover: Leaving | None
    pause: asyncio.TimerHandle | None

    @property
    def meters(self) -> Meters: ...

    @property
    def has_spoken(self) -> bool: ...

    def start_over(self) -> None: ...

    def try_next(self) -> None: ...


def go_elsewhere(delivery: Refused, endpoint: Endpoint, error: RequestError) -> bool:
    """Send the request to an endpoint, of this model or another, that may take what `endpoint` has refused. False:
    there is none, or the caller has a part of an answer.
    """
    if error.code not in UNFIT or delivery.has_spoken:
        return False
    hedge = delivery.hedge
    if hedge is not None and hedge.take_over():
        return True
    request, candidates = delivery.request, delivery.settings.candidates
    delivery.tried += candidates.refusing(request, endpoint, error)
    if not candidates.has_other(request, delivery.tried) and not move_on(delivery):
        return False
    failovers = delivery.meters.failovers
    failovers[error.code.value] = failovers.get(error.code.value, 0) + 1
    delivery.start_over()
    if delivery.handover is None:
        delivery.try_next()
    else:  # which has just passed on what its prefill engine said, and is still at work on its end
        delivery.handover = None
        delivery.pause = delivery.settings.loop.call_later(0, delivery.try_next)
    return True


def move_on(delivery: Refused) -> bool:
    """Go to another model, where the caller's word stands for several and its head does not name one yet."""
    request = delivery.request
    if request.choice is None or delivery.exchange.is_streaming:
        return False
    return delivery.settings.candidates.move_on(request, delivery.tried)
