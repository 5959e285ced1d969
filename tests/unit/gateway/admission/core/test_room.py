"""How much an endpoint may be given, from what is declared, what it shows, and what others give it."""

import pytest
from tests.harness.places import FakePlace

from headrace.gateway.admission.core.room import DeclaredRoom, Room, has_room, headroom_of
from headrace.gateway.endpoints.load import READINGS, Claim, EndpointLoad, MeasuredLoad


def reading(
    running: float | None,
    waiting: float | None = 0.0,
    *,
    ours: int = 0,
    kv: float | None = None,
    at_s: float = 0.0,
    ended: int = 0,
) -> MeasuredLoad:
    return MeasuredLoad(
        at_mono_s=at_s,
        running=running,
        waiting=waiting,
        kv_utilization_ratio=kv,
        kv_capacity_tokens=None,
        in_flight=ours,
        ended=ended,
    )


def tell(load: EndpointLoad, room: Room, shown: MeasuredLoad) -> None:
    load.note(shown)
    room.measured(shown)


def ask(place: FakePlace, tokens: int = 10, *, light: bool = False, contended: bool = True, ratio: float = 0.0) -> bool:
    return has_room(place, tokens, light, contended, ratio)


def test_nothing_known_is_no_limit():
    """An engine of which neither the declaration nor its metrics say anything is given all that comes."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    assert (load.sequences_limit, load.has_limit) == (None, False)
    tell(load, room, reading(500.0, 0.0, ours=500))
    tell(load, room, reading(None, None, ours=500))
    assert (load.sequences_limit, load.has_limit) == (None, False)


@pytest.mark.parametrize(("workers", "share"), [(1, 64), (2, 32), (3, 22), (100, 1)])
def test_workers_share_what_is_declared(workers: int, share: int):
    """Of several workers each may fill its part of an endpoint, whatever the others do."""
    load = EndpointLoad()
    Room(load, DeclaredRoom(sequences=64, workers=workers))
    assert load.sequences_limit == share


def test_an_engine_with_a_queue_shows_how_much_it_runs():
    """Requests waiting in an engine mean that it is full: it is given no more than it runs, and a little."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    tell(load, room, reading(48.0, 20.0, ours=68))
    assert (load.sequences_limit, load.has_limit) == (51, True)


def test_one_request_behind_a_long_prompt_is_no_full_engine():
    """With KV memory to spare, what waits once waits for a prompt ahead of it; what keeps waiting has no place."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    for running in (12.0, 14.0, 13.0):
        tell(load, room, reading(running, 2.0, ours=16, kv=0.3))
        tell(load, room, reading(running + 2, 0.0, ours=16, kv=0.3))
    assert load.sequences_limit is None
    for running in (46.0, 48.0, 47.0):
        assert load.sequences_limit is None
        tell(load, room, reading(running, 20.0, ours=68, kv=0.3))
    assert load.sequences_limit == 51


def test_an_engine_out_of_kv_memory_is_full_at_once():
    """Where KV memory is what requests wait for, the first reading says how many fit."""
    load = EndpointLoad()
    tell(load, Room(load, DeclaredRoom()), reading(48.0, 20.0, ours=68, kv=0.97))
    assert load.sequences_limit == 51


def test_an_engine_that_ends_many_keeps_as_many_waiting_as_it_ends_in_a_quarter_second():
    """Twenty a second may have five waiting: it fills its steps with prompts, and a newcomer waits no longer for it."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    for second in range(READINGS):
        tell(load, room, reading(12.0, 20.0, ours=32, kv=0.3, at_s=second, ended=20 * second))
    assert load.sequences_limit == 17


def test_a_learned_limit_grows_again_while_the_engine_keeps_up():
    """When all that may be sent is running and nothing waits, half as much more is sent."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    tell(load, room, reading(48.0, 20.0, ours=68))
    tell(load, room, reading(20.0, 0.0, ours=20))
    assert load.sequences_limit == 51
    tell(load, room, reading(51.0, 0.0, ours=51))
    assert load.sequences_limit == 77


def test_a_limit_that_workers_share_grows_too():
    """An engine that runs all it may, half of it another worker's, and has nothing waiting, is given more."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(workers=2))
    tell(load, room, reading(48.0, 20.0, ours=34))
    assert load.sequences_limit == 34
    tell(load, room, reading(52.0, 0.0, ours=26))
    assert load.sequences_limit == 39


def test_less_than_declared_is_given_to_an_engine_that_cannot_do_it():
    """An engine out of KV memory that runs 10 of its declared 64 is given about 10."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=64))
    tell(load, room, reading(10.0, 5.0, ours=15))
    assert load.sequences_limit == 11


def test_others_requests_take_their_part():
    """What others have sent to the same engine is not ours to fill, but half of it always is."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=8))
    for _ in range(READINGS):
        tell(load, room, reading(5.0, ours=2))
    assert load.sequences_limit == 5
    for _ in range(READINGS):
        tell(load, room, reading(8.0, ours=0))
    assert load.sequences_limit == 4


def test_one_reading_that_does_not_fit_our_count_changes_nothing():
    """A page is a little older than our own count beside it: what it shows too much of once is not others' work."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=8))
    tell(load, room, reading(8.0, ours=5))
    tell(load, room, reading(5.0, ours=8))
    tell(load, room, reading(8.0, ours=6))
    assert load.sequences_limit == 8


@pytest.mark.parametrize("declared", [None, 8])
@pytest.mark.parametrize("kv", [None, 0.3, 1.0])
def test_figures_that_are_wrong_never_cost_more_than_half(declared: int | None, kv: float | None):
    """An engine of 8 places that always says that 1000 wait keeps at least 4, and never gets more than it runs."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=declared))
    sent = 24
    for _ in range(100):
        tell(load, room, reading(float(min(sent, 8)), 1000.0, ours=sent, kv=kv))
        sent = min(24, load.sequences_limit or 24)
    assert 4 <= sent <= 9


def test_an_engine_short_of_memory_is_given_less_though_others_use_it_too():
    """Where some of ours wait as well, what runs is what the engine can do, and the limit sinks."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom())
    for running in (48.0, 40.0, 32.0):
        tell(load, room, reading(running, 60.0 - running, ours=50, kv=1.0))
    assert load.sequences_limit == 24


def test_a_worker_borrows_what_the_others_leave_free():
    """With two workers, an idle engine's free places are halved between them, never below a worker's own share."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=64, workers=2))
    tell(load, room, reading(32.0, ours=32))
    assert load.sequences_limit == 48
    tell(load, room, reading(64.0, ours=40))
    assert load.sequences_limit == 40
    tell(load, room, reading(64.0, ours=10))
    assert load.sequences_limit == 32


def test_stale_numbers_leave_what_is_declared():
    """An engine that says nothing any more is never refused: the declaration and our own counts hold."""
    load = EndpointLoad()
    room = Room(load, DeclaredRoom(sequences=64))
    for _ in range(READINGS):
        tell(load, room, reading(64.0, 3.0, ours=40))
    assert load.sequences_limit == 37
    room.went_stale()
    assert load.sequences_limit == 64
    undeclared = Room(load, DeclaredRoom())
    tell(load, undeclared, reading(4.0, 3.0, ours=7))
    undeclared.went_stale()
    assert (load.sequences_limit, load.has_limit) == (None, False)


@pytest.mark.parametrize(("limit", "kept"), [(1, 0), (4, 0), (7, 0), (8, 1), (16, 1), (64, 4), (256, 16)])
def test_a_small_engine_has_no_headroom(limit: int, kept: int):
    """A sixteenth of the places is kept; on an engine of a few places that is none."""
    assert headroom_of(limit, 1 / 16) == kept


def test_places_are_counted_at_their_bound():
    """A place with limit 2 takes two; the headroom is only for the light, and only in contention."""
    place = FakePlace(16)
    claims = [Claim(place, 0) for _ in range(14)]
    assert ask(place, ratio=1 / 8, light=True)
    assert not ask(place, ratio=1 / 8)
    assert ask(place, ratio=1 / 8, contended=False)
    claims += [Claim(place, 0) for _ in range(2)]
    assert not ask(place, ratio=1 / 8, light=True)
    assert not ask(place, contended=False)
    claims.pop().free()
    assert ask(place, contended=False)


def test_prompts_wait_for_one_another_only_in_contention():
    """While several tenants use an engine its prompts in work are bounded; a lone tenant's are not."""
    place = FakePlace(100)
    place.load.prefill_limit_tokens = 1000
    Claim(place, 800)
    assert ask(place, 200)
    assert not ask(place, 201)
    assert ask(place, 201, contended=False)
    assert ask(place, 1200, light=True)
    assert not ask(place, 1201, light=True)
    place.load.miss_ratio = 0.5  # half of them come from the engine's prefix cache
    assert ask(place, 1200)


def test_a_full_engine_takes_prompts_one_by_one():
    """With three quarters of its places taken, a quarter of the bound on prompts holds."""
    place = FakePlace(8)
    place.load.prefill_limit_tokens = 1000
    for _ in range(5):
        Claim(place, 0).first_token()
    Claim(place, 200)
    assert not ask(place, 51)
    assert ask(place, 50)


def test_an_idle_engine_takes_anything():
    """A prompt larger than every bound still goes to an engine that has nothing to do."""
    place = FakePlace(1)
    place.load.prefill_limit_tokens = place.load.held_limit_tokens = 10
    assert ask(place, 1_000_000)
    claim = Claim(place, 5)
    place.load.sequences_limit = 2
    assert not ask(place, 1_000_000)
    claim.free()
    assert ask(place, 1_000_000)


def test_held_tokens_are_bounded_where_that_is_declared():
    """Prompts and answers so far together stay below the declared number of tokens."""
    place = FakePlace(10)
    place.load.held_limit_tokens = 100
    claim = Claim(place, 60)
    claim.first_token()
    claim.grow(20)
    assert ask(place, 20)
    assert not ask(place, 21)
