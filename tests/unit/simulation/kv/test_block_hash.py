"""Blocks under a chained hash: names, reference counts, and the host tier behind them."""

from tests.unit.simulation.runs import request

from headrace.simulation.kv.block_hash import BlockHashCache, chain_hashes, salt_root
from headrace.simulation.model import KvModel
from headrace.simulation.sequence import LiveSequence


def live(name: str, tokens) -> LiveSequence:
    return LiveSequence(request(name, prompt=tokens), 0, 0.0, 10_000)


def run_through(cache: BlockHashCache, sequence: LiveSequence) -> tuple[int, int]:
    found = cache.match(sequence)
    total = sequence.input_tokens
    cache.take(cache.blocks_for(total) - cache.blocks_for(found.device_tokens))
    cache.publish(sequence, total)
    cache.release(sequence, total, total)
    return found


def test_a_name_stands_for_a_block_and_all_before_it() -> None:
    """The same tokens after another beginning have another name; a partial block has none."""
    one = chain_hashes(0, tuple(range(10)), 4)
    other = chain_hashes(0, (99, *range(1, 10)), 4)

    assert len(one) == 2
    assert one[1] != other[1]
    assert chain_hashes(0, tuple(range(8)), 4) == one


def test_names_are_the_same_in_every_process() -> None:
    """Salts do not depend on the interpreter's hash seed."""
    assert salt_root("tenant") == 21699119445640044
    assert salt_root("") == 0


def test_shared_blocks_are_counted_once() -> None:
    """Two that use the same prefix hold its blocks together, and it is idle only after both."""
    cache = BlockHashCache(KvModel(total_blocks=20, block_tokens=4))
    one, two = live("a", range(17)), live("b", range(17))
    for sequence in (one, two):
        found = cache.match(sequence)
        cache.take(5 - found.device_tokens // 4)
        cache.publish(sequence, 17)

    assert cache.used_blocks == 4 + 1 + 1
    cache.release(one, 17, 17)
    assert (cache.used_blocks, cache.idle_blocks) == (5, 0)
    cache.release(two, 17, 17)
    assert (cache.used_blocks, cache.idle_blocks) == (0, 4)


def test_an_abandoned_match_leaves_no_trace() -> None:
    """A request that found its prefix but no room pins nothing."""
    cache = BlockHashCache(KvModel(total_blocks=20, block_tokens=4))
    run_through(cache, live("a", range(17)))
    waiting = live("b", range(17))

    assert cache.match(waiting).device_tokens == 16
    assert cache.idle_blocks == 0
    cache.abandon(waiting)
    assert cache.idle_blocks == 4
    assert cache.match(waiting).device_tokens == 16


def test_the_host_keeps_what_was_evicted_up_to_its_size() -> None:
    """Blocks go to the host in the order of eviction; the oldest fall out."""
    cache = BlockHashCache(KvModel(total_blocks=8, block_tokens=4), host_blocks=3)
    run_through(cache, live("a", range(17)))
    cache.take(8)
    cache.give_back(8)

    assert cache.host_blocks == 3
    found = cache.match(live("again", range(17)))
    assert (found.device_tokens, found.host_tokens) == (0, 12)
