"""Both legs at once, which meet in a room (SGLang).

1. Both are sent the same body with a room of this attempt alone.
2. Decode's first token means that the KV came: what prefill does then is of no account.
3. One that fails before leaves the other waiting for minutes: it is cancelled and aborted by its id.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.engines.handover import RoomWords
from headrace.gateway.handover.core.events import (
    Action,
    End,
    FreeHeld,
    HandoverFailure,
    Leg,
    LegAnswered,
    LegRefused,
    SendLeg,
)
from headrace.gateway.handover.core.playbook import Expected, Playbook

ROOMS = 1 << 63
"""Rooms are numbers below this. Source: SGLang's `bootstrap_room`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Where the legs meet. `room` is drawn anew for each attempt."""

    host: str
    port: int
    room: int

    def __post_init__(self) -> None:
        if not 0 <= self.room < ROOMS:
            raise ValueError(f"a room is 0 to 2^63 - 1, not {self.room}")


class RoomPlaybook(Playbook):
    """See the module."""

    judges = frozenset({Leg.PREFILL, Leg.DECODE})

    def __init__(self, words: RoomWords, expected: Expected, *, attempt_id: str, meeting: Meeting) -> None:
        super().__init__(expected)
        self._words = words
        self._attempt_id = attempt_id
        self._meeting = meeting

    def start(self, now_mono_s: float) -> Sequence[Action]:
        """See `Playbook`. Decode's time includes prefill's, since it waits for it."""
        at = self._meeting
        request = self._words.leg(self._attempt_id, room=at.room, host=at.host, port=at.port)
        due = self._expected
        within_s = self._within(due.prefill_s, due.transfer_s, due.first_token_s)
        return (
            self._send(SendLeg(Leg.PREFILL, request, within_s)),
            self._send(SendLeg(Leg.DECODE, request, within_s)),
        )

    def _answered(self, event: LegAnswered, now_mono_s: float) -> Sequence[Action]:
        return ()

    def _why_refused(self, event: LegRefused) -> HandoverFailure:
        if event.leg is Leg.DECODE and self._words.is_transfer_error(event.body):
            return HandoverFailure.TRANSFER_FAILED
        return super()._why_refused(event)

    def _free(self, end: End, cancelled: frozenset[Leg]) -> Sequence[Action]:
        return [FreeHeld(leg.side, self._words.abort(self._attempt_id)) for leg in sorted(cancelled)]
