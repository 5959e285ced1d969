"""Whose request is handed over, and how it goes on where the hand-over has ended before decode spoke.

Counterpart: `handover.py`.
"""

from time import monotonic
from typing import Protocol

from headrace.domain.errors import ErrorCode, RequestError
from headrace.domain.request import InferenceRequest
from headrace.domain.usage import TokenUsage
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.forwarding.attempt import Attempt
from headrace.gateway.forwarding.phase import STREAM, WHOLE, Phase
from headrace.gateway.forwarding.ports import DeliveryAccount, ForwardingSettings
from headrace.gateway.forwarding.resumption import Resumption
from headrace.gateway.forwarding.whole_answer import STREAM_TYPE
from headrace.gateway.forwarding.whole_as_stream import as_stream
from headrace.gateway.http.connection_pool import Sending
from headrace.gateway.http.engine_connection import AnswerReader


class Leaving(Protocol):
    """A hand-over, as the delivery sees it."""

    def leave(self) -> None:
        """Nobody waits for it any more."""
        ...

    def counted(self, usage: TokenUsage) -> TokenUsage:
        """Decode's usage as it is charged."""
        ...


class HandedOver(AnswerReader, Protocol):
    """The delivery, which gets decode's answer."""

    request: InferenceRequest
    extra_lines: bytes
    phase: Phase
    tried: tuple[Endpoint, ...]
    resumption: Resumption | None
    first_claim: Claim | None
    handover: Leaving | None
    is_split: bool
    """It was handed over before."""

    @property
    def account(self) -> DeliveryAccount: ...

    @property
    def settings(self) -> ForwardingSettings: ...

    def take(self, attempt: Attempt, sending: Sending | None) -> None:
        """What comes now is the answer of this attempt."""
        ...

    def rejoin(self, endpoint: Endpoint, now: float) -> bool:
        """Go on elsewhere than at `endpoint` with a stream that the caller has a part of. False: there is none."""
        ...

    def attempt_at(self, endpoint: Endpoint) -> None: ...

    def start_over(self) -> None: ...

    def try_again(self, code: ErrorCode, now: float) -> None: ...

    def fail(self, error: RequestError) -> None: ...


def answer_early(delivery: HandedOver, attempt: Attempt, body: bytes) -> None:
    """Prefill's answer is all there is."""
    is_stream = delivery.request.is_stream
    delivery.take(attempt, None)
    delivery.answer_begun(200, STREAM_TYPE if is_stream else {})
    delivery.answer_bytes(as_stream(body) if is_stream else body)
    if delivery.phase is WHOLE or delivery.phase is STREAM:
        delivery.answer_complete()


def fall_back(delivery: HandedOver, code: ErrorCode, at_fault: Endpoint | None, detail: str) -> None:
    """A hand-over did not come off: its request goes the aggregated way, under the same claim on the caller's quota and
    without taking from the budget of retries. Where no engine answers alone, it is a failed attempt as any other.
    """
    delivery.handover, delivery.account.detail = None, detail
    if at_fault is not None and at_fault not in delivery.tried:
        delivery.tried += (at_fault,)
    now = monotonic()
    if at_fault is not None and delivery.rejoin(at_fault, now):
        return
    endpoint = delivery.settings.candidates.choose_whole(delivery.request, delivery.tried)
    if endpoint is None:
        delivery.try_again(code, now)
    else:
        delivery.start_over()
        delivery.attempt_at(endpoint)
