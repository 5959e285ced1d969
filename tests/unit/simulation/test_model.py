"""What is modelled is checked where it would make no sense."""

import pytest
from tests.unit.simulation.runs import small_model

from headrace.simulation.model import CacheKind, HostTier, Speculation, TransferLink


def test_the_budget_must_hold_one_token_of_each_sequence() -> None:
    """With drafts each sequence takes more of it."""
    small_model(max_sequences=16)
    with pytest.raises(ValueError, match="token budget of 17"):
        small_model(max_sequences=17)
    with pytest.raises(ValueError, match=r"8 x 3 tokens a step need a token budget of 24"):
        small_model(max_sequences=8, speculation=Speculation(draft_tokens=2, acceptance_ratio=0.5))


def test_without_chunks_the_budget_must_hold_the_context() -> None:
    """Or the longest prompt would wait for ever."""
    small_model(is_prefill_chunked=False, max_batched_tokens=100)
    with pytest.raises(ValueError, match="prompt of 100 tokens"):
        small_model(is_prefill_chunked=False, max_batched_tokens=99)


def test_a_host_tier_behind_slots_is_refused() -> None:
    """What is not modelled is refused, not ignored."""
    with pytest.raises(ValueError, match="host tier"):
        small_model(kind=CacheKind.SLOTS, block_tokens=1, host=HostTier(total_blocks=1, return_bytes_per_s=1.0))


def test_a_transfer_takes_latency_and_size() -> None:
    """2 GB over 25 GB/s, after a millisecond."""
    assert TransferLink(bytes_per_s=25e9, latency_s=0.001).transfer_s(2_000_000_000) == pytest.approx(0.081)
