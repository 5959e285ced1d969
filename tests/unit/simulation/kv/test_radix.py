"""The tree of prefixes: what is shared is stored once, and what nobody uses goes by last use."""

from tests.unit.simulation.runs import request

from headrace.simulation.kv.radix import RadixCache
from headrace.simulation.model import CacheKind, KvModel
from headrace.simulation.sequence import LiveSequence


def tree(blocks: int = 100, page: int = 1, host: int = 0) -> RadixCache:
    return RadixCache(KvModel(total_blocks=blocks, block_tokens=page, kind=CacheKind.RADIX), host_blocks=host)


def run_through(cache: RadixCache, name: str, tokens, output: int = 0, **fields) -> int:
    """Match, compute and release one sequence; return how many tokens were found."""
    sequence = LiveSequence(request(name, prompt=tokens, output=output or 1, **fields), 0, 0.0, 10_000)
    found = cache.match(sequence).device_tokens
    total = sequence.input_tokens
    cache.take(cache.blocks_for(total) - cache.blocks_for(found))
    cache.publish(sequence, total)
    cache.release(sequence, total, total)
    return found


def test_prompts_that_part_share_their_beginning() -> None:
    """Ten common tokens are stored once; each keeps its own end."""
    cache = tree()
    run_through(cache, "a", (*range(10), 50, 51))

    assert run_through(cache, "b", (*range(10), 60, 61)) == 10
    assert cache.shared_blocks == 14
    assert run_through(cache, "c", (*range(10), 50, 51, 52)) == 12


def test_pages_are_found_whole() -> None:
    """With pages of four, a match of ten tokens counts for eight; a partial page is not kept."""
    cache = tree(page=4)
    run_through(cache, "a", range(14))

    assert cache.shared_blocks == 3
    assert run_through(cache, "b", (*range(10), 99, 99, 99)) == 8


def test_what_is_in_use_is_not_evicted() -> None:
    """A running sequence's path stays, however old; the idle leaf goes."""
    cache = tree(blocks=30)
    run_through(cache, "a", range(10))
    holder = LiveSequence(request("holder", prompt=(*range(10), 7)), 0, 0.0, 10_000)
    assert cache.match(holder).device_tokens == 10
    run_through(cache, "b", range(100, 110))

    cache.take(15)

    assert cache.evicted_blocks == 10
    cache.give_back(15)
    assert run_through(cache, "b again", range(100, 111)) == 0
    assert run_through(cache, "a again", (*range(10), 8)) == 10


def test_last_used_first_kept() -> None:
    """Of two idle prompts, the one that was asked for again survives."""
    cache = tree(blocks=30)
    run_through(cache, "a", range(10))
    run_through(cache, "b", range(100, 110))
    run_through(cache, "a again", range(10))

    cache.take(15)
    cache.give_back(15)

    assert run_through(cache, "a once more", range(11)) == 10
    assert run_through(cache, "b again", range(100, 111)) == 0


def test_two_who_compute_the_same_leave_one_copy() -> None:
    """Both start before either is done; the second copy becomes free."""
    cache = tree()
    one, two = (LiveSequence(request(name, prompt=range(20)), 0, 0.0, 10_000) for name in "ab")
    for sequence in (one, two):
        assert cache.match(sequence).device_tokens == 0
        cache.take(20)
    assert cache.private_blocks == 40
    for sequence in (one, two):
        cache.publish(sequence, 20)

    assert cache.private_blocks == 0
    assert cache.shared_blocks == cache.used_blocks == 20
    for sequence in (one, two):
        cache.release(sequence, 20, 20)
    assert cache.used_blocks == 0


def test_clearing_keeps_what_is_in_use() -> None:
    """All idle nodes go, even those above others."""
    cache = tree()
    run_through(cache, "a", range(10))
    run_through(cache, "b", (*range(5), 70, 71))
    holder = LiveSequence(request("holder", prompt=(*range(3), 90)), 0, 0.0, 10_000)
    cache.match(holder)

    cache.clear()

    assert cache.idle_blocks == 0
    assert cache.shared_blocks == 3


def test_the_host_keeps_what_was_evicted_and_gives_it_back() -> None:
    """What lies on the host is found behind what lies on the device, and moves up when it is published."""
    cache = tree(blocks=20, host=15)
    run_through(cache, "a", range(10))
    cache.take(20)
    cache.give_back(20)
    assert (cache.shared_blocks, cache.host_blocks) == (0, 10)

    again = LiveSequence(request("again", prompt=(*range(8), 99, 98)), 0, 0.0, 10_000)
    found = cache.match(again)
    assert (found.device_tokens, found.host_tokens) == (0, 8)
    cache.take(8)
    cache.publish(again, 8)

    assert (cache.shared_blocks, cache.host_blocks, cache.private_blocks) == (8, 2, 0)


def test_a_full_host_forgets_the_oldest() -> None:
    """Two prompts do not fit on the host: the one evicted first, which was used longest ago, is gone."""
    cache = tree(blocks=20, host=15)
    run_through(cache, "old", range(10))
    run_through(cache, "young", range(100, 110))
    cache.take(20)
    cache.give_back(20)

    assert cache.host_blocks == 10
    for name, start, tokens in (("old again", 0, 0), ("young again", 100, 9)):
        sequence = LiveSequence(request(name, prompt=range(start, start + 10)), 0, 0.0, 10_000)
        assert cache.match(sequence).host_tokens == tokens
        cache.abandon(sequence)
