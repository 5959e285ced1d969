"""When the steps of one hand-over were: what the time to a first token is made of."""

from dataclasses import dataclass, field

from headrace.gateway.handover.core.events import DecodeClaimed, Event, FirstTokenArrived, Leg, LegAnswered

MOVING = (Leg.SAVE, Leg.RESTORE)
"""Legs that move KV and do nothing else."""


@dataclass(slots=True, eq=False)
class HandoverClock:
    """Units: seconds, monotonic."""

    _sent: dict[Leg, float] = field(default_factory=dict[Leg, float])
    _answered: dict[Leg, float] = field(default_factory=dict[Leg, float])
    _claimed_mono_s: float | None = None
    _first_token_mono_s: float | None = None

    def sent(self, leg: Leg, now_mono_s: float) -> None:
        self._sent[leg] = now_mono_s

    def note(self, event: Event, now_mono_s: float) -> None:
        """Something happened now."""
        match event:
            case LegAnswered():
                self._answered.setdefault(event.leg, now_mono_s)
            case DecodeClaimed():
                self._claimed_mono_s = now_mono_s
            case FirstTokenArrived():
                self._first_token_mono_s = now_mono_s
                self._answered.setdefault(Leg.PREFILL, now_mono_s)
            case _:
                pass

    @property
    def prefill_s(self) -> float | None:
        """Of the leg; where both legs were sent at once and decode spoke first, until then."""
        sent, answered = self._sent.get(Leg.PREFILL), self._answered.get(Leg.PREFILL)
        return None if sent is None or answered is None else answered - sent

    def transfer_s(self, first_step_s: float) -> float | None:
        """The time that KV was on its way; of engines that move it within decode's leg, less decode's first step."""
        legs = [self._answered[leg] - self._sent[leg] for leg in MOVING if leg in self._answered]
        if Leg.SAVE in self._sent:
            return sum(legs) if len(legs) == len(MOVING) else None
        sent, first = self._sent.get(Leg.DECODE), self._first_token_mono_s
        if sent is None or first is None:
            return None
        ready = max(sent, self._answered.get(Leg.PREFILL, sent))
        return max(0.0, first - ready - first_step_s)

    def decode_wait_s(self, first_step_s: float) -> float | None:
        """What was waited for decode beside the transfer: for a place, and for its first step."""
        first, sent = self._first_token_mono_s, self._sent.get(Leg.DECODE)
        if first is None or sent is None:
            return None
        ready = self._answered.get(Leg.SAVE) or self._answered.get(Leg.PREFILL)
        waited_s = 0.0 if self._claimed_mono_s is None or ready is None else max(0.0, self._claimed_mono_s - ready)
        step_s = first - sent if Leg.SAVE in self._sent else min(first_step_s, first - sent)
        return waited_s + step_s
