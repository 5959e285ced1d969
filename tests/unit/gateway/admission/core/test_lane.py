"""Who of a queue goes next, and whom it lets in."""

import pytest
from tests.harness.places import FakePool, tenants

from headrace.domain.request import RequestClass
from headrace.gateway.admission.core.bands import BANDS, BandRules
from headrace.gateway.admission.core.lane import FLOWS_KEPT, FORGET_S, QueueBound, Refused
from headrace.gateway.endpoints.load import Claim

INTERACTIVE, STANDARD, OFFLINE = BANDS


def test_a_request_starts_at_once_while_there_is_room_and_waits_otherwise():
    """Nobody waits while an endpoint has a free place; the next request waits for one to become free."""
    pool = FakePool(1, 1)
    first, second = pool.come(), pool.come()
    third = pool.come()
    assert [place.in_flight for place in pool.places] == [1, 1]
    assert (third.is_waiting, pool.lane.waiting, pool.lane.in_service) == (True, 1, 2)
    pool.finish(first)
    assert (third.is_waiting, pool.lane.waiting) == (False, 0)
    pool.finish(second)
    pool.finish(third)
    assert [place.in_flight for place in pool.places] == [0, 0]
    assert pool.lane.in_service == 0


def test_a_place_without_a_bound_takes_everything():
    """Where nothing is known of an engine, nothing waits."""
    pool = FakePool(None)
    for _ in range(100):
        pool.come()
    assert (pool.lane.waiting, pool.places[0].in_flight) == (0, 100)


def test_tenants_take_turns_however_many_requests_one_has():
    """A tenant with one request is served next, not after all that came before it."""
    pool = FakePool(1)
    for _ in range(6):
        pool.come("a")
    pool.come("b")
    for _ in range(7):
        pool.finish_first()
    assert tenants(pool.started)[:3] in ("aba", "aab")
    assert tenants(pool.started).count("b") == 1


def test_a_tenant_is_served_by_its_weight():
    """With weights 3 and 1 the first tenant gets three of four tokens."""
    pool = FakePool(1)
    for _ in range(80):
        pool.come("a", weight=3.0)
        pool.come("b", weight=1.0)
    for _ in range(80):
        pool.finish_first(output_tokens=50)
    served = tenants(pool.started[:80])
    assert 57 <= served.count("a") <= 63


def test_output_counts_as_it_streams():
    """A tenant whose answers are long is served less often than one whose answers are short."""
    pool = FakePool(1)
    for _ in range(60):
        pool.come("a", tokens=10)
        pool.come("b", tokens=10)
    for _ in range(60):
        ticket = next(iter(pool.running))
        pool.lane.charge_output(ticket, 100 if ticket.flow.tenant == "a" else 20)
        pool.finish(ticket, output_tokens=100 if ticket.flow.tenant == "a" else 20)
    served = tenants(pool.started[:60])
    assert 3 <= served.count("b") / served.count("a") <= 5


def test_a_returning_tenant_has_saved_nothing_up():
    """Who comes back after a pause shares from then on, and is not served alone for what it did not use."""
    pool = FakePool(1)
    for _ in range(40):
        pool.come("a")
    for _ in range(20):
        pool.finish_first(output_tokens=100)
    for _ in range(10):
        pool.come("b")
    before = len(pool.started)
    for _ in range(10):
        pool.finish_first(output_tokens=100)
    served = tenants(pool.started[before:])
    assert served.count("b") in (5, 6)


def test_within_a_tenant_who_came_first_goes_first():
    """Requests of one tenant keep their order."""
    pool = FakePool(1)
    tickets = [pool.come("a", at_s=float(at)) for at in range(5)]
    for _ in range(5):
        pool.finish_first()
    assert pool.started == tickets


def test_the_nearest_deadline_goes_first_where_that_is_declared():
    """With order `deadline` a tenant's most urgent request overtakes its others; those without one come last."""
    pool = FakePool(1, deadline_first=True)
    pool.come()
    late = pool.come(deadline_mono_s=90.0)
    never = pool.come()
    soon = pool.come(deadline_mono_s=10.0)
    for _ in range(4):
        pool.finish_first()
    assert pool.started[1:] == [soon, late, never]


def test_more_urgent_classes_go_first():
    """Interactive before standard before offline, whoever came first."""
    pool = FakePool(1)
    pool.come()
    for request_class in reversed(BANDS):
        pool.come(request_class=request_class)
    for _ in range(4):
        pool.finish_first()
    assert [ticket.flow.request_class for ticket in pool.started[1:]] == list(BANDS)


def test_a_reserved_share_is_served_although_more_urgent_work_waits():
    """Offline work with a tenth reserved gets about a tenth of the tokens under an interactive flood."""
    shares = {INTERACTIVE: 0.0, STANDARD: 0.0, OFFLINE: 0.1}
    bands = {each: BandRules(reserved_ratio=share, starvation_s=1e9) for each, share in shares.items()}
    pool = FakePool(1, bands=bands)
    for _ in range(300):
        pool.come("a", request_class=INTERACTIVE)
        pool.come("b", request_class=OFFLINE)
    for _ in range(300):
        pool.finish_first()
    assert 25 <= tenants(pool.started[:300]).count("b") <= 35


def test_a_band_never_starves_for_longer_than_its_bound():
    """Offline work without any share goes first once nothing of it was served for its bound."""
    bands = {each: BandRules(reserved_ratio=0.0, starvation_s=10.0) for each in BANDS}
    pool = FakePool(1, bands=bands)
    for _ in range(200):
        pool.come("a", request_class=INTERACTIVE)
    for _ in range(5):
        pool.come("b", request_class=OFFLINE)
    now_s, served_at_s = 0.0, list[float]()
    for _ in range(60):
        now_s += 1.0
        before = len(pool.started)
        pool.finish_first(now_s)
        served_at_s += [now_s for ticket in pool.started[before:] if ticket.flow.tenant == "b"]
    assert served_at_s == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_the_headroom_is_for_tenants_below_their_share():
    """While two tenants use a pool the one that floods leaves places free, and the quiet one starts at once."""
    pool = FakePool(16, headroom_ratio=1 / 8)
    pool.come("quiet")
    pool.finish_first()
    for _ in range(30):
        pool.come("noisy", at_s=1.0)
    assert pool.places[0].in_flight == 14
    quiet = pool.come("quiet", at_s=2.0)
    assert not quiet.is_waiting


def test_alone_a_tenant_has_all_places():
    """Headroom is kept only while others use the pool: half a minute after them it is used again."""
    pool = FakePool(16, headroom_ratio=1 / 8)
    pool.come("other")
    pool.finish_first()
    for _ in range(16):
        pool.come("a", at_s=31.0)
    assert (pool.places[0].in_flight, pool.lane.waiting) == (16, 0)


def test_a_request_raises_those_it_waits_for():
    """An interactive request of a conversation takes its offline predecessor with it, which then goes before it."""
    pool = FakePool(1)
    pool.come()
    offline = pool.come("a", request_class=OFFLINE, key="chat-1")
    other = pool.come("b", request_class=STANDARD)
    interactive = pool.come("a", request_class=INTERACTIVE, key="chat-1")
    foreign = pool.come("c", request_class=OFFLINE, key="chat-1")
    for _ in range(5):
        pool.finish_first()
    assert pool.started[1:] == [offline, interactive, other, foreign]


def test_one_that_waits_for_an_endpoint_of_its_own_holds_up_nobody():
    """A request bound to a full endpoint is passed over while another endpoint has room."""
    pool = FakePool(1, 2)
    pool.come(place=0)
    bound = pool.come(place=0)
    free = pool.come(place=1)
    also_free = pool.come()
    assert (bound.is_waiting, free.is_waiting, also_free.is_waiting) == (True, False, False)
    pool.finish(pool.started[0])
    assert not bound.is_waiting


@pytest.mark.parametrize(
    ("bound", "changes"),
    [
        (QueueBound.TENANT_REQUESTS, {"tenant_requests": 2}),
        (QueueBound.TENANT_BYTES, {"tenant_bytes": 20}),
        (QueueBound.POOL_REQUESTS, {"pool_requests": 2}),
        (QueueBound.POOL_BYTES, {"pool_bytes": 20}),
    ],
)
def test_a_full_queue_refuses_and_names_the_bound(bound: QueueBound, changes: dict[str, object]):
    """At its bound a queue takes one more after one has left, and says which bound, its value and its use."""
    pool = FakePool(1, **changes)
    pool.come(body_bytes=10)
    first, _second = pool.come(body_bytes=10), pool.come(body_bytes=10)
    refused = pool.enter(pool.ticket(body_bytes=10), 0.0)
    assert isinstance(refused, Refused)
    assert (refused.bound, refused.limit, refused.used) == (bound, *((2, 2) if "requests" in bound.value else (20, 20)))
    pool.lane.leave(first)
    assert pool.enter(pool.ticket(body_bytes=10), 0.0) is None


def test_a_bound_of_zero_lets_nobody_wait():
    """A queue of length 0 only refuses what cannot start at once."""
    pool = FakePool(1, tenant_requests=0)
    pool.come()
    assert isinstance(pool.enter(pool.ticket(), 0.0), Refused)
    pool.finish_first()
    assert isinstance(pool.enter(pool.ticket(), 0.0), Claim)


def test_who_waits_too_long_is_named():
    """Each class has its own longest wait, to the second."""
    waits = {INTERACTIVE: 5.0, STANDARD: 10.0, OFFLINE: 100.0}
    pool = FakePool(1, longest_wait_s=waits)
    pool.come()
    interactive = pool.come(request_class=INTERACTIVE)
    standard = pool.come()
    pool.come(request_class=OFFLINE)
    assert pool.lane.expired(4.9) == []
    assert pool.lane.expired(5.0) == [interactive]
    assert set(pool.lane.expired(10.0)) == {interactive, standard}


def test_offline_work_gives_way_to_what_is_more_urgent():
    """The offline request that started last may be withdrawn for an interactive one; it waits again, charged once."""
    pool = FakePool(2)
    first = pool.come("b", request_class=OFFLINE)
    second = pool.come("b", request_class=OFFLINE)
    assert list(pool.lane.iter_withdrawable(0.0)) == []
    interactive = pool.come("a", request_class=INTERACTIVE)
    assert list(pool.lane.iter_withdrawable(0.0)) == [second, first]
    pool.running.pop(second).free()
    pool.lane.requeue(second, 0.0)
    pool.pump()
    assert (interactive.is_waiting, second.is_waiting, second.withdrawals) == (False, True, 1)
    pool.finish(interactive)
    assert not second.is_waiting
    counter = second.flow.counter
    pool.finish(first)
    pool.finish(second)
    assert counter == 200.0


def test_offline_work_whose_turn_it_was_stays():
    """Offline work that was started because it had waited for its bound is not taken back for others who wait."""
    bands = {each: BandRules(reserved_ratio=0.0, starvation_s=10.0) for each in BANDS}
    pool = FakePool(1, bands=bands)
    for _ in range(3):
        pool.come("a", request_class=INTERACTIVE)
    pool.come("b", request_class=OFFLINE)
    pool.finish_first(5.0)
    pool.finish_first(12.0)
    assert tenants(list(pool.running)) == "b"
    assert list(pool.lane.iter_withdrawable(12.0)) == []


def test_an_expected_wait_follows_the_drain_rate():
    """With one start a second, ten waiting requests of one's own mean about eleven seconds."""
    pool = FakePool(1)
    assert pool.lane.expected_wait_s(pool.lane.flow("a", STANDARD, 1.0), 0.0) == 0.0
    for _ in range(40):
        pool.come("a")
    assert pool.lane.expected_wait_s(pool.lane.flow("a", STANDARD, 1.0), 0.0) is None
    for second in range(1, 30):
        pool.finish_first(float(second))
    assert pool.lane.waiting == 10
    wait_s = pool.lane.expected_wait_s(pool.lane.flow("a", STANDARD, 1.0), 29.0)
    assert wait_s is not None
    assert 9.0 < wait_s < 12.0


def test_weights_may_change_while_requests_wait():
    """A tenant's new weight holds from its next request on, and nothing is lost or counted twice."""
    pool = FakePool(1)
    pool.come("a", weight=1.0)
    pool.come("a", weight=5.0)
    flow = pool.lane.flow("a", RequestClass.STANDARD, 2.0)
    assert flow.weight == 2.0
    for _ in range(2):
        pool.finish_first()
    assert (pool.lane.waiting, pool.lane.in_service, list(pool.lane.iter_flows())) == (0, 0, [])


def test_tenants_that_are_gone_are_forgotten():
    """Very many tenants that come once take no memory for ever; who waits or runs is kept."""
    pool = FakePool(1)
    running = pool.come("running")
    waiting = pool.come("waiting")
    for number in range(FLOWS_KEPT):
        pool.lane.flow(f"t{number}", STANDARD, 1.0)
    pool.lane.forget_idle(FORGET_S + 1.0)
    assert pool.lane.flow("running", STANDARD, 1.0) is running.flow
    assert pool.lane.flow("waiting", STANDARD, 1.0) is waiting.flow
    before = pool.lane.flow("t1", STANDARD, 1.0)
    pool.lane.forget_idle(2 * FORGET_S)
    assert pool.lane.flow("t1", STANDARD, 1.0) is before  # few are left: nothing to forget
