"""What the time to a first token of a split request is made of."""

import pytest

from headrace.gateway.forwarding.handover_clock import HandoverClock
from headrace.gateway.handover.core.events import DecodeClaimed, FirstTokenArrived, Leg, LegAnswered


def test_slots_tell_the_transfer_apart() -> None:
    """Saving and restoring are the transfer; the wait for a slot and decode's first step are decode's queue."""
    clock = HandoverClock()
    clock.sent(Leg.PREFILL, 0.0)
    clock.note(LegAnswered(Leg.PREFILL), 2.0)
    clock.sent(Leg.SAVE, 2.0)
    clock.note(LegAnswered(Leg.SAVE), 2.5)
    clock.note(DecodeClaimed(1), 3.0)
    clock.sent(Leg.RESTORE, 3.0)
    assert clock.transfer_s(0.1) is None
    clock.note(LegAnswered(Leg.RESTORE), 3.25)
    clock.sent(Leg.DECODE, 3.25)
    clock.note(FirstTokenArrived(), 3.5)
    assert (clock.prefill_s, clock.transfer_s(0.1), clock.decode_wait_s(0.1)) == (2.0, 0.75, 0.75)


def test_tickets_have_their_transfer_in_decodes_leg() -> None:
    """What the first token took beyond decode's usual step is the transfer."""
    clock = HandoverClock()
    clock.sent(Leg.PREFILL, 0.0)
    clock.note(LegAnswered(Leg.PREFILL), 1.0)
    clock.note(DecodeClaimed(), 1.0)
    clock.sent(Leg.DECODE, 1.0)
    clock.note(FirstTokenArrived(), 1.5)
    assert clock.transfer_s(0.1) == pytest.approx(0.4)
    assert clock.decode_wait_s(0.1) == pytest.approx(0.1)


def test_legs_that_are_sent_at_once_end_with_the_first_token() -> None:
    """Prefill's own answer may never be looked at; without a first token nothing is told of what follows."""
    clock = HandoverClock()
    clock.sent(Leg.PREFILL, 0.0)
    clock.sent(Leg.DECODE, 0.0)
    assert (clock.prefill_s, clock.transfer_s(0.1), clock.decode_wait_s(0.1)) == (None, None, None)
    clock.note(FirstTokenArrived(), 1.0)
    assert (clock.prefill_s, clock.transfer_s(0.1)) == (1.0, 0.0)
