"""Planned loads."""

from benchmarks.fit.streams import WORDS, plan_of


def test_streams_start_one_after_the_other() -> None:
    """So that it is no chance who comes first."""
    plan = plan_of(3, 96, 32, 0.005)

    assert [request.sent_at_s for request in plan] == [0.0, 0.005, 0.01]
    assert {(request.input_tokens, request.output_tokens) for request in plan} == {(96, 32)}


def test_words_are_plain_and_different() -> None:
    """Prompts are made of frequent words, so that each is one token."""
    assert len(set(WORDS)) == len(WORDS) > 90
    assert all(word.isalpha() and word.islower() for word in WORDS)
