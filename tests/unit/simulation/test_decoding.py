"""Counting all generating sequences together gives what counting each would."""

import pytest
from tests.unit.simulation.runs import request

from headrace.simulation.decoding import decoding_for
from headrace.simulation.model import Speculation
from headrace.simulation.sequence import LiveSequence


def started(name: str, prompt: int, output: int) -> LiveSequence:
    """A sequence that has its first token."""
    sequence = LiveSequence(request(name, prompt=prompt, output=output), 0, 0.0, 10_000)
    sequence.kv_tokens, sequence.emitted = prompt, 1
    return sequence


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("block_tokens", [1, 4, 16])
def test_sums_are_those_of_the_single_sequences(drafts: int, block_tokens: int) -> None:
    """Step by step: tokens of KV, blocks taken, tokens gained, and who ends when."""
    speculation = Speculation(draft_tokens=drafts, acceptance_ratio=0.5) if drafts else None
    decoding = decoding_for(block_tokens, speculation)
    sequences = [started(f"s{index}", 3 + index, 5 + 3 * index) for index in range(6)]
    stand = {}
    for index, sequence in enumerate(sequences):
        decoding.add(sequence)
        stand[sequence.request_id] = sequence.kv_tokens
        if index == 2:
            decoding.advance()
            for before in sequences[:3]:
                stand[before.request_id] += decoding.gained_tokens(before)
    ended: list[str] = []
    while decoding.sequences:
        live = list(decoding.sequences.values())
        assert decoding.kv_tokens == sum(stand[each.request_id] for each in live)
        needed = decoding.blocks_needed
        tokens = decoding.advance()
        gains = {each.request_id: decoding.last_gain_tokens(each) for each in live}
        assert tokens == sum(gains.values())
        crossed = 0
        for name, gain in gains.items():
            crossed += -(-(stand[name] + gain) // block_tokens) - -(-stand[name] // block_tokens)
            stand[name] += gain
        assert needed == crossed
        ended += [each.request_id for each in decoding.pop_ended()]

    assert sorted(ended) == sorted(stand)
    for sequence in sequences:
        assert sequence.emitted == sequence.output_tokens
        assert sequence.kv_tokens == sequence.longest_kv_tokens == stand[sequence.request_id]


@pytest.mark.parametrize("drafts", [0, 2])
def test_one_who_leaves_early_takes_its_future_along(drafts: int) -> None:
    """After it is gone, the sums are those of the others."""
    speculation = Speculation(draft_tokens=drafts, acceptance_ratio=0.5) if drafts else None
    decoding = decoding_for(4, speculation)
    stays, leaves = started("stays", 5, 30), started("leaves", 9, 30)
    for sequence in (stays, leaves):
        decoding.add(sequence)
    for _ in range(3):
        decoding.advance()
    decoding.remove(leaves)

    assert leaves.emitted == 1 + leaves.kv_tokens - 9
    assert decoding.kv_tokens == 5 + decoding.gained_tokens(stays)
    while decoding.sequences:
        decoding.advance()
        decoding.pop_ended()
    assert (decoding.kv_tokens, decoding.blocks_needed) == (0, 0)


def test_one_who_comes_back_may_end_at_the_step_it_would_have_ended() -> None:
    """A sequence that was preempted and rejoins has two entries with the same end; it still ends once."""
    decoding = decoding_for(4, None)
    sequence, other = started("a", 5, 10), started("b", 5, 10)
    for each in (sequence, other):
        decoding.add(each)
    decoding.remove(sequence)
    decoding.add(sequence)
    ended = []
    while decoding.sequences:
        decoding.advance()
        ended += [each.request_id for each in decoding.pop_ended()]

    assert sorted(ended) == ["a", "b"]
