"""What the playbooks of all protocols share: which legs run, and that each ends once, with nothing left behind.

| what happened | before decode's first token | after it |
| --- | --- | --- |
| prefill finds the caller's request wrong | passed on | - |
| decode finds it wrong, though prefill did not | the aggregated way | - |
| a leg is refused, lost or late; the KV is not what it should be | the aggregated way | - |
| decode is lost | the aggregated way | broken: the stream's affair |
| the caller leaves | all is cancelled | all is cancelled |

In each row the legs that still run are cancelled and what engines hold is freed, in the same step. Subclasses:
`ticket_playbook.py`, `room_playbook.py`, `slot_playbook.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.gateway.handover.core.events import (
    Action,
    CallerLeft,
    CancelLeg,
    DecodeClaimed,
    DecodeUnavailable,
    End,
    Event,
    FileWeighed,
    FirstTokenArrived,
    HandoverEnd,
    HandoverFailure,
    Leg,
    LegAnswered,
    LegLost,
    LegOverdue,
    LegRefused,
    SendLeg,
    Side,
)

REFUSED = {
    Leg.PREFILL: HandoverFailure.PREFILL_REFUSED,
    Leg.SAVE: HandoverFailure.TRANSFER_FAILED,
    Leg.RESTORE: HandoverFailure.TRANSFER_FAILED,
    Leg.DECODE: HandoverFailure.DECODE_REFUSED,
}
LOST = {
    Leg.PREFILL: HandoverFailure.PREFILL_LOST,
    Leg.SAVE: HandoverFailure.PREFILL_LOST,
    Leg.RESTORE: HandoverFailure.DECODE_LOST,
    Leg.DECODE: HandoverFailure.DECODE_LOST,
}
LATE = {
    Leg.PREFILL: HandoverFailure.PREFILL_LATE,
    Leg.SAVE: HandoverFailure.TRANSFER_LATE,
    Leg.RESTORE: HandoverFailure.TRANSFER_LATE,
    Leg.DECODE: HandoverFailure.DECODE_LATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """How long the steps should take, as learned (`link_times.py`, routing's rates), and the bound on top of it.

    A step that is due and has not come after `bound_s` more has failed: a failure is never noticed later than that.
    """

    prefill_s: float
    transfer_s: float
    first_token_s: float
    """Decode's, once it has the KV."""
    bound_s: float = 5.0


class Playbook(ABC):
    """One disaggregated request. Concurrency: one owner. After `End` all events are without effect."""

    judges: ClassVar[frozenset[Leg]] = frozenset({Leg.PREFILL})
    """Legs whose word on the request goes to the caller: they are sent it as it is, not what was computed elsewhere."""

    def __init__(self, expected: Expected) -> None:
        self.end: End | None = None
        self._expected = expected
        self._running: list[Leg] = []
        self._has_first_token = False

    def __repr__(self) -> str:
        state = self.end.how.value if self.end else "+".join(self._running) or "waiting"
        return f"{type(self).__name__}({state})"

    @property
    def running(self) -> frozenset[Leg]:
        """The legs that were sent and have not ended."""
        return frozenset(self._running)

    @property
    def file_name(self) -> str | None:
        """The file of a shared folder that is in use."""
        return None

    @abstractmethod
    def start(self, now_mono_s: float) -> Sequence[Action]:
        """Begin; called once."""

    def on(self, event: Event, now_mono_s: float) -> Sequence[Action]:
        """Return what follows from `event`. An event of a leg that does not run is a late one, and nothing follows."""
        if self.end is not None:
            return ()
        match event:
            case CallerLeft():
                return self._finish(End(HandoverEnd.CALLER_LEFT))
            case FirstTokenArrived():
                return self._first_token() if Leg.DECODE in self._running else ()
            case DecodeClaimed():
                return self._decode_claimed(event, now_mono_s)
            case FileWeighed():
                return self._file_weighed(event)
            case DecodeUnavailable():
                return self._decode_unavailable()
            case LegOverdue():
                return self._overdue(event.leg) if event.leg in self._running else ()
            case _:
                return self._ended_leg(event, now_mono_s) if event.leg in self._running else ()

    def _ended_leg(self, event: LegAnswered | LegRefused | LegLost, now_mono_s: float) -> Sequence[Action]:
        leg = event.leg
        self._running.remove(leg)
        if isinstance(event, LegAnswered):
            return self._complete(leg) if leg is Leg.DECODE else self._answered(event, now_mono_s)
        if self._has_first_token:
            return self._broken(leg)
        if isinstance(event, LegLost):
            return self._fail(LOST[leg], leg.side)
        if event.is_callers_fault and leg in self.judges:
            return self._finish(End(HandoverEnd.PASSED_ON, leg=leg))
        return self._fail(self._why_refused(event), leg.side)

    def _overdue(self, leg: Leg) -> Sequence[Action]:
        """With decode's first token here, nobody needs another leg's answer, and decode's own has no bound."""
        if not self._has_first_token:
            return self._fail(LATE[leg], leg.side)
        if leg is Leg.DECODE:
            return ()
        self._running.remove(leg)
        return (CancelLeg(leg),)

    def _broken(self, leg: Leg) -> Sequence[Action]:
        """The caller has content: prefill's part is over, and decode's loss is the stream's affair."""
        if leg is not Leg.DECODE:
            return ()
        return self._finish(End(HandoverEnd.BROKEN, failure=HandoverFailure.DECODE_LOST, at_fault=Side.DECODE))

    def _first_token(self) -> Sequence[Action]:
        self._has_first_token = True
        return ()

    def _why_refused(self, event: LegRefused) -> HandoverFailure:
        return REFUSED[event.leg]

    def _complete(self, leg: Leg) -> Sequence[Action]:
        return self._finish(End(HandoverEnd.COMPLETED, leg=leg))

    def _fail(self, failure: HandoverFailure, at_fault: Side | None) -> Sequence[Action]:
        return self._finish(End(HandoverEnd.FELL_BACK, failure=failure, at_fault=at_fault))

    def _send(self, send: SendLeg) -> SendLeg:
        self._running.append(send.leg)
        return send

    def _within(self, *expected_s: float) -> float:
        return sum(expected_s) + self._expected.bound_s

    def _finish(self, end: End) -> Sequence[Action]:
        cancels = [CancelLeg(leg) for leg in self._running]
        actions: list[Action] = [*cancels, *self._free(end, frozenset(self._running)), end]
        self._running.clear()
        self.end = end
        return actions

    @abstractmethod
    def _answered(self, event: LegAnswered, now_mono_s: float) -> Sequence[Action]:
        """A leg before decode has succeeded."""

    def _decode_claimed(self, event: DecodeClaimed, now_mono_s: float) -> Sequence[Action]:
        return ()

    def _file_weighed(self, event: FileWeighed) -> Sequence[Action]:
        return ()

    def _decode_unavailable(self) -> Sequence[Action]:
        return ()

    @abstractmethod
    def _free(self, end: End, cancelled: frozenset[Leg]) -> Sequence[Action]:
        """Return what frees all that engines hold for this request. `cancelled`: legs that ran until now."""
