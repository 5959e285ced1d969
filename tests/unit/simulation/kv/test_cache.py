"""What all kinds of KV memory share."""

import pytest
from tests.unit.simulation.runs import small_model

from headrace.simulation.kv import cache_for
from headrace.simulation.kv.cache import shared_prefix_length
from headrace.simulation.model import CacheKind


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        ((), (), 0),
        ((1,), (2,), 0),
        ((1, 2, 3), (1, 2, 4), 2),
        ((1, 2), (1, 2, 3), 2),
        ((5,) * 1000, (5,) * 999 + (6,), 999),
    ],
)
def test_how_much_two_prompts_share(one, other, length: int) -> None:
    """To the token, also at the very beginning and the very end."""
    assert shared_prefix_length(one, other) == length


@pytest.mark.parametrize("kind", CacheKind)
def test_an_empty_memory_is_all_available(kind: CacheKind) -> None:
    """Blocks used and available add up from the start, and what was taken can be given back."""
    cache = cache_for(small_model(kind=kind, block_tokens=1))

    assert (cache.available_blocks, cache.used_blocks) == (64, 0)
    cache.take(60)
    assert (cache.available_blocks, cache.used_blocks) == (4, 60)
    cache.give_back(60)
    assert (cache.available_blocks, cache.used_blocks, cache.releases) == (64, 0, 1)
