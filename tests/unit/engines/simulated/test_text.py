"""The simulated engine's language: tokens both ways, and answers that show what was lost."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engines.simulated.text import (
    FixedAnswer,
    NumberedAnswer,
    continue_answer,
    decode,
    encode,
    expected_text,
    seed_of,
    split_own_answer,
)

CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello?"}]


@given(st.text().filter(lambda text: "\0" not in text))
def test_tokens_give_the_text_back(text: str):
    """Tokenizing works both ways, whatever the script."""
    if text.encode("utf-8", "replace").decode() == text:
        assert decode(encode(text)) == text


def test_a_token_is_four_bytes():
    """As many tokens as English has in the vocabularies of current models."""
    assert len(encode("")) == 0
    assert len(encode("abcd")) == 1
    assert len(encode("abcde")) == 2
    assert len(encode("é" * 4)) == 2


def test_equal_beginnings_have_equal_tokens():
    """What a prefix cache needs."""
    assert encode("shared beginning, one")[:4] == encode("shared beginning, two")[:4]


def test_ids_that_no_text_has_are_survived():
    """A caller may send any number."""
    assert isinstance(decode([2**32 - 1, 0, 255]), str)


def test_an_answer_depends_on_model_prompt_and_choice_alone():
    """The same question gets the same answer on every replica; another one another."""
    assert expected_text("m", "hi", 20) == expected_text("m", "hi", 20)
    different = {
        expected_text("m", "hi", 20),
        expected_text("other", "hi", 20),
        expected_text("m", "hi!", 20),
        expected_text("m", "hi", 20, choice=1),
        expected_text("m", CHAT, 20),
        expected_text("m", CHAT[1:], 20),
    }
    assert len(different) == 6


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_shorter_answer_is_the_beginning_of_a_longer_one(shorter: int, more: int):
    """Word k does not depend on how many were asked for."""
    assert expected_text("m", "hi", shorter + more).startswith(expected_text("m", "hi", shorter))


def test_a_lost_doubled_or_swapped_token_shows():
    """Nearly no two neighbouring words are the same, so that comparing with the expected text finds every slip."""
    words = expected_text("m", "hi", 500).split(" ")
    assert len(words) == 500
    swaps = sum(one == other for one, other in pairwise(words))
    assert swaps < 5


@given(st.integers(0, 300))
def test_a_continuation_is_exactly_the_rest(characters: int):
    """Whatever part of the answer a caller has, even half a word, the rest follows without seam."""
    whole = expected_text("m", CHAT, 80)
    partial = whole[:characters]
    segments = ["<|system|>\n", "Be short.", "<|user|>\n", "Hello?"]
    rest = continue_answer("m", segments, partial, 80)
    assert partial + rest.text(0, rest.natural_tokens) == whole


def test_a_beginning_that_is_not_ours_is_continued_as_a_prompt_of_its_own():
    """A prefill such as "Sure:" leads to an answer of its own."""
    first, second = (continue_answer("m", ["q"], begun, 50).text(0, 50) for begun in ("Sure:", "No:"))
    assert first != second
    assert first != expected_text("m", "q", 50)


@pytest.mark.parametrize("tokens", [1, 2, 7, 31, 32, 33, 64])
def test_a_continued_text_prompt_is_found(tokens: int):
    """The completions API has no field for a continuation: the answer's beginning stands at the prompt's end."""
    begun = expected_text("m", "Once upon a time", tokens)
    assert split_own_answer("m", "Once upon a time" + begun) == ("Once upon a time", begun)


@pytest.mark.parametrize("text", ["", "Hello", "What is the capital of France?", "Sam bit Bob", "x" * 5000])
def test_an_ordinary_prompt_is_no_continuation(text: str):
    """Nothing is cut off what a caller wrote."""
    assert split_own_answer("m", text) is None


def test_a_fixed_answer_is_cut_into_tokens():
    """JSON is sent four characters at a time."""
    answer = FixedAnswer('{"a":1}')
    assert answer.natural_tokens == 2
    assert [answer.piece(k) for k in range(3)] == ['{"a"', ":1}", ""]
    assert answer.text(0, 2) == '{"a":1}'


def test_a_numbered_answer_counts():
    """What load clients check."""
    assert NumberedAnswer(9).text(0, 3) == " 0 1 2"


def test_seeds_do_not_run_together():
    """Where one part of a prompt ends matters."""
    assert seed_of("m", ["ab", "c"]) != seed_of("m", ["a", "bc"])


def test_word_choice_is_even():
    """No word is so frequent that losing it could go unnoticed."""
    random.seed(1)
    words = expected_text("m", str(random.random()), 5000).split(" ")
    assert max(words.count(word) for word in set(words)) < 20
