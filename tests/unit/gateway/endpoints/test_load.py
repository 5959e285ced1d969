"""What an endpoint has to do, in tokens."""

from headrace.gateway.endpoints.load import Claim, EndpointLoad, MeasuredLoad


class PlainPlace:
    """An endpoint without an engine."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.load = EndpointLoad()


def measured(at_mono_s: float, *, running: float | None, waiting: float | None = None, in_flight: int = 0):
    return MeasuredLoad(
        at_mono_s=at_mono_s,
        running=running,
        waiting=waiting,
        kv_utilization_ratio=None,
        kv_capacity_tokens=None,
        in_flight=in_flight,
    )


def test_tokens_move_from_prefill_to_held_and_are_freed():
    """A claim counts as prefill until its first token, then as held with its output, and leaves nothing behind."""
    place = PlainPlace()
    claim = Claim(place, 100)
    assert (place.in_flight, place.load.prefilling, place.load.prefill_tokens) == (1, 1, 100)
    claim.grow(5)  # before the first token: nothing is held yet
    claim.first_token()
    claim.first_token()
    claim.grow(7)
    claim.grow(9)
    assert (place.load.prefilling, place.load.prefill_tokens, place.load.held_tokens) == (0, 0, 109)
    claim.free()
    assert (place.in_flight, place.load.prefilling, place.load.prefill_tokens, place.load.held_tokens) == (0, 0, 0, 0)


def test_a_claim_that_ends_before_its_first_token_frees_its_prompt():
    """A request that fails or is cancelled in its prompt gives its prefill tokens back."""
    place = PlainPlace()
    Claim(place, 40).free()
    assert (place.in_flight, place.load.prefill_tokens, place.load.held_tokens) == (0, 0, 0)


def test_a_listener_hears_of_first_tokens_and_ends():
    """Whoever waits for room is told when some may have come."""
    place, heard = PlainPlace(), list[str]()
    place.load.listener = lambda: heard.append("freed")
    claim = Claim(place, 1)
    claim.first_token()
    claim.free()
    assert heard == ["freed", "freed"]


def test_stale_numbers_are_no_numbers():
    """An engine's numbers stop counting when they are too old, and their age is still told."""
    load = EndpointLoad()
    assert load.fresh(0.0) is None
    assert load.age_s(0.0) is None
    load.note(measured(10.0, running=3))
    load.fresh_for_s = 6.0
    assert load.fresh(16.0) is load.measured
    assert load.fresh(16.1) is None
    assert load.age_s(30.0) == 20.0


def test_foreign_requests_are_what_is_not_ours():
    """What an engine runs and queues beyond our own requests is others' work; never a negative number."""
    assert measured(0.0, running=5, waiting=2, in_flight=4).foreign == 3
    assert measured(0.0, running=1, in_flight=4).foreign == 0
    assert measured(0.0, running=None, waiting=9).foreign == 0


def test_foreign_requests_are_believed_once_several_readings_show_them():
    """What has just ended looks like others' work on one page: the fewest of three readings count, none of old ones."""
    load = EndpointLoad()
    shown = []
    for running in (9, 6, 7, 4, 8):
        load.note(measured(0.0, running=running, in_flight=4))
        shown.append(load.foreign)
    assert shown == [0, 0, 2, 0, 0]
    load.went_stale()
    load.note(measured(0.0, running=9, in_flight=4))
    assert load.foreign == 0
