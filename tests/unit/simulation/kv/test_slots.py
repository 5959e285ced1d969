"""Slots: each keeps what it served last, until another needs the room or the slot."""

import pytest
from tests.unit.simulation.runs import request

from headrace.simulation.kv.slots import SlotCache
from headrace.simulation.model import CacheKind, KvModel
from headrace.simulation.sequence import LiveSequence


def slots(count: int = 2, tokens: int = 100) -> SlotCache:
    return SlotCache(KvModel(total_blocks=tokens, block_tokens=1, kind=CacheKind.SLOTS), slots=count)


def run_through(cache: SlotCache, name: str, tokens) -> int:
    sequence = LiveSequence(request(name, prompt=tokens), 0, 0.0, 10_000)
    found = cache.match(sequence).device_tokens
    cache.take(sequence.input_tokens - found)
    cache.release(sequence, sequence.input_tokens, sequence.input_tokens)
    return found


def test_the_slot_that_shares_most_is_taken() -> None:
    """A known beginning goes back to its slot; the other keeps what it has."""
    cache = slots()
    run_through(cache, "a", range(20))
    run_through(cache, "b", range(100, 120))

    assert run_through(cache, "a again", range(25)) == 20
    assert run_through(cache, "b again", range(100, 125)) == 20


def test_one_shared_token_does_not_cost_another_its_slot() -> None:
    """One shared token of twenty is below the similarity: the slot that was idle for longest is taken."""
    cache = slots()
    run_through(cache, "a", range(20))
    run_through(cache, "b", range(100, 120))

    assert run_through(cache, "c", (100, *range(500, 519))) == 0
    assert run_through(cache, "b again", range(100, 120)) == 19


def test_an_idle_slot_gives_way_when_memory_is_short() -> None:
    """What it kept is forgotten, and counted as evicted."""
    cache = slots(tokens=50)
    run_through(cache, "a", range(30))
    run_through(cache, "b", range(100, 140))

    assert cache.evicted_blocks == 30
    assert run_through(cache, "a again", range(5)) == 0


def test_blocks_of_several_tokens_make_no_sense() -> None:
    """Slots hold single tokens."""
    with pytest.raises(ValueError, match="single tokens"):
        SlotCache(KvModel(total_blocks=10, block_tokens=16, kind=CacheKind.SLOTS), slots=1)
