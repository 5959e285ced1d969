"""Prefill first, and its answer's ticket to decode (vLLM, TensorRT-LLM).

1. Prefill is sent. Answered whole (the model had no more to say): that is the answer.
2. Its ticket is read; room at decode is claimed.
3. The ticket is spent, if it was never used and is fresh, and decode is sent.
4. Decode's first token, then its end.

Nothing can be freed by a call: an engine gives up KV that nobody fetches by itself (vLLM: after its lease).
"""

from collections.abc import Sequence

from headrace.domain.request import ApiDialect
from headrace.engines.handover import Ticket, TicketWords, WholeAnswer
from headrace.gateway.handover.core.events import (
    Action,
    ClaimDecode,
    DecodeClaimed,
    End,
    HandoverFailure,
    Leg,
    LegAnswered,
    SendLeg,
    Side,
)
from headrace.gateway.handover.core.playbook import Expected, Playbook
from headrace.gateway.handover.core.tickets import SpentTickets


class TicketPlaybook(Playbook):
    """See the module. `attempt_id` is of this attempt alone."""

    def __init__(
        self, words: TicketWords, spent: SpentTickets, expected: Expected, *, attempt_id: str, api: ApiDialect
    ) -> None:
        super().__init__(expected)
        self._words = words
        self._spent = spent
        self._attempt_id = attempt_id
        self._api = api
        self._ticket: Ticket | None = None
        self._given_up_mono_s = 0.0

    def start(self, now_mono_s: float) -> Sequence[Action]:
        """See `Playbook`."""
        request = self._words.prefill(self._attempt_id, self._api)
        return (self._send(SendLeg(Leg.PREFILL, request, self._within(self._expected.prefill_s))),)

    def _answered(self, event: LegAnswered, now_mono_s: float) -> Sequence[Action]:
        found = self._words.read_prefill(event.body, self._attempt_id, self._api)
        if isinstance(found, WholeAnswer):
            return self._complete(event.leg)
        if found is None:
            return self._fail(HandoverFailure.PREFILL_UNREADABLE, Side.PREFILL)
        self._ticket = found
        self._given_up_mono_s = now_mono_s + found.usable_s
        return (ClaimDecode(min(self._expected.bound_s, found.usable_s)),)

    def _decode_claimed(self, event: DecodeClaimed, now_mono_s: float) -> Sequence[Action]:
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            return ()
        if now_mono_s + self._expected.transfer_s >= self._given_up_mono_s:
            return self._fail(HandoverFailure.TICKET_EXPIRED, None)
        if not self._spent.try_spend(ticket.key):
            return self._fail(HandoverFailure.TICKET_SPENT, Side.PREFILL)
        within_s = self._within(self._expected.transfer_s, self._expected.first_token_s)
        return (self._send(SendLeg(Leg.DECODE, ticket.decode, within_s)),)

    def _decode_unavailable(self) -> Sequence[Action]:
        return () if self._ticket is None else self._fail(HandoverFailure.DECODE_UNAVAILABLE, Side.DECODE)

    def _free(self, end: End, cancelled: frozenset[Leg]) -> Sequence[Action]:
        self._ticket = None
        return ()
