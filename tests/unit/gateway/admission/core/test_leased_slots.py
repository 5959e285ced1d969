"""What leased slots do beyond what every meter promises (tests/contract/test_meters.py)."""

from headrace.domain.quota import Level, LimitId, Unit
from headrace.gateway.admission.core.lease_desk import LeaseDesk
from headrace.gateway.admission.core.leased_slots import IDLE_S, LeasedSlots
from headrace.tenancy.leases.exchange import LeaseAnswer

LIMIT = LimitId(Level.TENANT, "t", Unit.CONCURRENT_REQUESTS)


class Hurried:
    """A desk, and how often it was hurried."""

    def __init__(self) -> None:
        self.times = 0
        desk = LeaseDesk("m", is_open=True, member_s=5.0, wake=self._wake)
        self.slots = LeasedSlots(LIMIT, 10, desk)

    def _wake(self) -> None:
        self.times += 1


def answer(grant: int, keep: int = 10) -> LeaseAnswer:
    return LeaseAnswer(LIMIT.name, grant, keep, 0, 0, 0, 0.0, 0.0, 0)


def test_slots_above_the_fair_share_go_back_as_they_become_free() -> None:
    """While others wait, a slot that becomes free here is not used again here, and goes back at once."""
    hurried = Hurried()
    slots = hurried.slots
    slots.adopt(answer(4), 0.0)
    slots.take(4, 0.0)
    slots.adopt(answer(0, keep=2), 0.1)
    slots.give_back(1, 0.0, 0.2)
    assert hurried.times == 1
    assert slots.wait_s(1, 0.2) > 0.0
    assert slots.report(0.2).held == 3


def test_what_is_in_work_is_never_given_back() -> None:
    """However few the fair share is, requests in work keep their slots."""
    slots = Hurried().slots
    slots.adopt(answer(3), 0.0)
    slots.take(3, 0.0)
    slots.adopt(answer(0, keep=0), 0.0)
    report = slots.report(0.0)
    assert (report.held, report.need) == (3, 3)


def test_a_few_free_slots_are_kept_for_the_next_requests() -> None:
    """A gateway in use has a slot ready; one that is idle keeps none."""
    slots = Hurried().slots
    slots.adopt(answer(8), 0.0)
    slots.take(4, 0.0)
    assert slots.report(0.0).held == 6
    slots.give_back(4, 0.0, 0.1)
    assert slots.report(0.5).held == 1
    assert slots.report(IDLE_S + 0.1).held == 0


def test_slots_counted_without_asking_are_held() -> None:
    """A limit that is declared while requests are in work counts them, even above what was leased."""
    slots = Hurried().slots
    slots.take(3, 0.0)
    assert slots.report(0.0).held == 3


def test_slots_in_use_are_not_asked_for_again_and_again() -> None:
    """While another gateway waits for a slot, one whose slots are all in use makes no exchange for that."""
    hurried = Hurried()
    slots = hurried.slots
    slots.adopt(answer(3), 0.0)
    slots.take(2, 0.0)
    slots.recall(0.0)
    assert hurried.times == 1
    slots.take(1, 0.0)
    slots.recall(0.1)
    assert hurried.times == 1
