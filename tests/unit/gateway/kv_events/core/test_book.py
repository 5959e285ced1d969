"""What a cache holds, added up from its events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.gateway.kv_events.core.book import MOST_MISSING, MOST_NUMBER, MOST_RANKS, CacheBook
from headrace.gateway.kv_events.core.changes import Change, Cleared, Removed, Sized, Stored, Tier

STORED = (Stored(blocks=4, block_tokens=16),)


def test_nothing_is_known_before_the_first_message():
    """An engine that has not said anything is not one with an empty cache."""
    book = CacheBook()
    assert (book.held_tokens(), book.losses) == (None, None)


def test_stored_less_removed_is_held():
    """Counted in blocks, told in tokens."""
    book = CacheBook()
    book.add(0, 0, (*STORED, Removed(blocks=1), Stored(blocks=2, block_tokens=16, tier=Tier.BEYOND)))
    assert (book.held_tokens(), book.held_tokens(Tier.DEVICE), book.held_tokens(Tier.BEYOND)) == (80, 48, 32)
    assert book.losses == 1


def test_a_gap_that_is_filled_is_none():
    """What is missing is said, and once it came the counts are whole."""
    book = CacheBook()
    book.add(0, 0, STORED)
    assert range(1, 3) == book.missing_before(0, 3)
    for number in (1, 2, 3):
        book.add(0, number, STORED)
    assert (book.held_tokens(), book.missed) == (256, 0)


def test_after_a_gap_nothing_is_known_until_the_cache_is_empty():
    """Removals may have been missed; a cache that was cleared is known again."""
    book = CacheBook()
    book.add(0, 0, STORED)
    book.add(0, 2, STORED)
    assert (book.held_tokens(), book.losses, book.missed) == (None, None, 1)
    book.add(0, 3, (Cleared(), *STORED))
    assert (book.held_tokens(), book.clears) == (64, 1)


def test_a_lower_number_is_another_process():
    """It counts from 0 again, and its cache is empty."""
    book = CacheBook()
    for number in range(5):
        book.add(0, number, STORED)
    assert range(1) == book.missing_before(0, 1)
    book.add(0, 0, STORED)
    book.add(0, 1, ())
    assert (book.held_tokens(), book.restarts, book.emptyings) == (64, 1, 1)


def test_after_a_new_connection_all_before_is_missing():
    """It may be another process with higher numbers: what the old one held is not counted on."""
    book = CacheBook()
    book.add(0, 0, STORED)
    book.doubt(0)
    assert range(4) == book.missing_before(0, 4)
    for number in range(5):
        book.add(0, number, STORED)
    assert (book.held_tokens(), book.restarts) == (320, 0)


def test_an_engine_that_ran_before_is_not_whole():
    """A gateway that comes later has missed what was stored before, unless the engine tells it again."""
    book = CacheBook()
    book.add(0, 900, STORED)
    assert (book.held_tokens(), book.missed) == (None, 900)


def test_a_message_that_cannot_be_read_is_missing():
    """What it said is not known."""
    book = CacheBook()
    book.add(0, 0, STORED)
    book.lose(0, 1)
    assert (book.held_tokens(), book.malformed, book.missed) == (None, 1, 0)


def test_every_rank_counts():
    """Each data-parallel rank has a cache of its own, and all of them must have been heard of."""
    book = CacheBook(ranks=2)
    book.add(0, 0, STORED)
    assert None is book.held_tokens()
    book.add(1, 0, STORED)
    assert book.held_tokens() == 128


def test_ranks_are_bounded():
    """A broken engine that makes ranks up does not fill the memory."""
    book = CacheBook()
    for rank in range(MOST_RANKS + 1):
        book.add(rank, 0, STORED)
    book.add(0, 1, STORED)
    assert (book.messages, book.held_tokens()) == (MOST_RANKS + 1, (MOST_RANKS + 1) * 64)


def test_a_cache_that_says_its_size_is_as_large():
    """TensorRT-LLM tells its blocks; how many tokens one has is known from the first that is stored."""
    book = CacheBook()
    book.add(0, 0, (Sized(100),))
    assert None is book.capacity_tokens
    book.add(0, 1, (Stored(blocks=1, block_tokens=32),))
    assert book.capacity_tokens == 3200


CHANGES = st.lists(
    st.one_of(
        st.integers(0, 50).map(lambda blocks: Stored(blocks=blocks, block_tokens=16)),
        st.integers(0, 50).map(lambda blocks: Removed(blocks=blocks)),
        st.just(Cleared()),
    ),
    max_size=5,
)


@given(st.lists(st.tuples(st.integers(0, 6), CHANGES), max_size=20))
def test_what_is_held_is_never_below_nothing(messages: list[tuple[int, list[Change]]]):
    """Whatever comes in whatever order, a cache holds nothing or more, and counts only grow."""
    book = CacheBook()
    lost = 0
    for number, changes in messages:
        book.add(0, number, tuple(changes))
        assert (book.held_tokens() or 0) >= 0
        counted = book.removed_blocks + book.emptyings
        assert counted >= lost
        lost = counted


@pytest.mark.parametrize(
    ("number", "expected"), [(-5, False), (0, True), (MOST_NUMBER, True), (MOST_NUMBER + 1, False)]
)
def test_a_number_that_none_can_be_is_not_believed(number: int, expected: bool):
    """Whatever is believed can also be added up; an engine that runs for years may begin with any number."""
    book = CacheBook()
    assert expected is book.believes(0, number)
    if expected:
        book.add(0, number, STORED)
        assert book.missed == number


def test_a_leap_is_believed_once_the_next_message_goes_on_from_there():
    """One wild number leaves the counts unknown, and does not make the next message look like a new process's."""
    book = CacheBook()
    book.add(0, 0, STORED)
    assert book.believes(0, 1 + MOST_MISSING)
    assert not book.believes(0, 2 + MOST_MISSING)
    assert not book.believes(0, 2**62)
    assert book.believes(0, 1)
    book.add(0, 1, (Cleared(), *STORED))
    assert (book.held_tokens(), book.restarts) == (64, 0)
    assert [book.believes(0, number) for number in (2**62, 2**62 + 2)] == [False, True]
