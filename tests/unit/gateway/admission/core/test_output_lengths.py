"""How long answers are expected to be."""

import random

import pytest

from headrace.gateway.admission.core.output_lengths import GROWTH, START_TOKENS, OutputLengths


def test_nothing_is_believed_before_enough_is_known() -> None:
    """A model's first answers are reserved for on the safe side."""
    lengths = OutputLengths()
    for _ in range(19):
        lengths.learn(3)
    assert lengths.expected_tokens == START_TOKENS
    lengths.learn(3)
    assert lengths.expected_tokens == 3


@pytest.mark.parametrize("mean", [20, 300, 5000])
def test_it_is_the_95th_percentile(mean: int) -> None:
    """One answer in twenty is longer, up to the width of a step."""
    chance = random.Random(mean)
    lengths = OutputLengths()
    answers = [max(1, round(chance.expovariate(1 / mean))) for _ in range(4000)]
    for answer in answers:
        lengths.learn(answer)
    truth = sorted(answers[-1500:])[int(0.95 * 1500)]
    assert truth / 1.15 <= lengths.expected_tokens <= truth * GROWTH * 1.15


def test_the_past_is_forgotten() -> None:
    """A prompt that makes answers ten times as long is known for it after some hundred of them."""
    lengths = OutputLengths()
    for _ in range(20_000):
        lengths.learn(50)
    for _ in range(200):
        lengths.learn(800)
    assert 800 <= lengths.expected_tokens <= 1000
    for _ in range(5000):
        lengths.learn(0)
    assert lengths.expected_tokens == 1
