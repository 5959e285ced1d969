"""A stream that broke goes on elsewhere: each step that `resumption.py` decides is carried out for the delivery.

Counterpart: `delivery.py`, which is handed a body to send, an error to end with, or the stream's own end.
"""

import asyncio
from functools import partial
from time import monotonic
from typing import Protocol

from headrace.domain.errors import RequestError
from headrace.domain.request import InferenceRequest
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.forwarding.caller_stream import CallerStream
from headrace.gateway.forwarding.core.bars import ResumeCause
from headrace.gateway.forwarding.phase import ENDED, PAUSE, Phase
from headrace.gateway.forwarding.ports import DeliveryAccount, Ending, ForwardingSettings, Meters
from headrace.gateway.forwarding.resumption import Resumption, TokenQuestion
from headrace.gateway.http.exchange import Exchange

RESUME_PAUSE_S = 0.1
"""Between two looks for an endpoint to go on at, where none is ready. Chosen."""


class Interrupted(Protocol):
    """Whose stream broke: the delivery."""

    request: InferenceRequest
    exchange: Exchange
    ending: Ending
    settings: ForwardingSettings
    tried: tuple[Endpoint, ...]
    phase: Phase
    pause: asyncio.TimerHandle | None
    resumption: Resumption | None

    @property
    def account(self) -> DeliveryAccount: ...

    @property
    def meters(self) -> Meters: ...

    def attempt_at(self, endpoint: Endpoint) -> None: ...

    def fail(self, error: RequestError) -> None: ...

    def crashed(self, bug: Exception) -> None: ...


def resume(
    delivery: Interrupted,
    stream: CallerStream,
    endpoint: Endpoint,
    cause: ResumeCause,
    now: float,
    *,
    is_told: bool = False,
) -> None:
    """The caller has a part of an answer that nobody goes on with: go on elsewhere, or end it."""
    if delivery.resumption is None:
        account = delivery.account
        delivery.resumption = Resumption(delivery.request, account.caller, delivery.settings.resume, delivery.meters)
    delivery.resumption.broke(stream.watch, endpoint.driver.dialect.continuation, cause, now, is_told=is_told)
    _go_on(delivery, delivery.resumption)


def _go_on(delivery: Interrupted, resumption: Resumption) -> None:
    if delivery.phase is ENDED:
        return
    delivery.phase, delivery.pause = PAUSE, None
    try:
        step = resumption.step(delivery.settings.candidates, delivery.tried, monotonic())
        if step is None:
            delivery.pause = delivery.settings.loop.call_later(RESUME_PAUSE_S, _go_on, delivery, resumption)
        elif isinstance(step, TokenQuestion):
            step.ask(partial(_go_on, delivery, resumption))
        elif isinstance(step, Endpoint):
            delivery.attempt_at(step)
        elif isinstance(step, RequestError):
            delivery.account.detail = f"{delivery.account.detail}; {step.message}"
            delivery.fail(step)
        else:
            delivery.phase = ENDED
            delivery.exchange.send(step)
            delivery.exchange.end_stream()
            delivery.ending.delivered(200, None)
    except Exception as bug:  # noqa: BLE001 (boundary of the timer)
        delivery.crashed(bug)
