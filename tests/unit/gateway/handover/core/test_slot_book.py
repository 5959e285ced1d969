"""Who has which slot."""

import pytest

from headrace.gateway.handover.core.slot_book import SlotBook


def test_a_slot_has_one_request() -> None:
    """No slot is given twice; with none left a request waits."""
    book = SlotBook(2)
    assert [book.try_claim() for _ in range(3)] == [0, 1, None]
    book.free(1)
    assert book.try_claim() == 1
    assert repr(book) == "SlotBook(2 taken, 0 idle)"


def test_the_slot_that_was_idle_longest_goes_first() -> None:
    """What a slot holds of the last prompt lives as long as it can."""
    book = SlotBook(3)
    book.free(book.try_claim() or 0)
    assert [book.try_claim() for _ in range(3)] == [1, 2, 0]


def test_a_slot_is_given_back_once() -> None:
    """The second time is a bug, and says so."""
    book = SlotBook(1)
    with pytest.raises(KeyError):
        book.free(0)
