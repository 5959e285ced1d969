"""KV that one engine holds for others: who gets it, who waits, and what is forgotten."""

from headrace.engines.simulated.transfer import Fetch, Held, KvShelf, fetch


def test_kv_is_given_once():
    """The first who asks gets it, and the holder is told."""
    shelf, taken = KvShelf(), list[str]()
    shelf.put("k", "request-1", 100, lambda: taken.append("k"))
    assert shelf.take("k") == ("request-1", 100)
    assert shelf.take("k") is None
    assert taken == ["k"]


def test_who_waits_is_told_when_it_will_not_come():
    """An aborted prefill leaves no decode engine waiting for ever."""
    shelf, told = KvShelf(), list[Held | None]()
    shelf.wait("k", told.append)
    shelf.drop("k")
    assert told == [None]
    assert shelf.waiters("k") == []


def test_what_the_engine_let_go_of_is_forgotten():
    """Keys that nobody fetched in time do not pile up."""
    shelf = KvShelf()
    for number in range(10):
        shelf.put(f"k{number}", f"request-{number}", 1)
    shelf.prune(lambda request_id: request_id == "request-7")
    assert [key for key in (f"k{number}" for number in range(10)) if shelf.take(key)] == ["k7"]


async def test_an_engine_that_is_gone_has_no_kv():
    """A refused connection is a lost transfer, not an exception."""
    assert await fetch(Fetch(host="127.0.0.1", port=1, key="k")) is None
