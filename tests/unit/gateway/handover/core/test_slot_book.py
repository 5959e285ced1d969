"""Who has which slot."""

import pytest

from headrace.gateway.handover.core.slot_book import SlotBook


def test_a_handover_has_a_slot_alone() -> None:
    """No slot is given twice; with none left a request waits."""
    book = SlotBook(range(2))
    assert [book.try_claim() for _ in range(3)] == [0, 1, None]
    book.free(1)
    assert book.try_claim() == 1
    assert repr(book) == "SlotBook(2 hand over, 0 serve, 0 idle)"


def test_the_slot_that_was_idle_longest_goes_first() -> None:
    """What a slot holds of the last prompt lives as long as it can."""
    book = SlotBook(range(3))
    book.free(book.try_claim() or 0)
    assert [book.try_claim() for _ in range(3)] == [1, 2, 0]


def test_whole_requests_share_slots_but_never_that_of_a_handover() -> None:
    """More requests than slots wait in the engine, each behind the fewest others; a saved slot is nobody else's."""
    book = SlotBook(range(3))
    assert book.try_claim() == 0
    assert [book.try_share() for _ in range(4)] == [1, 2, 1, 2]
    assert book.try_claim() is None
    book.free(1)
    assert book.idle == 0
    book.free(1)
    assert book.idle == 1
    assert book.try_claim() == 1


def test_where_handovers_have_all_slots_a_whole_request_gets_none() -> None:
    """It goes to the engine without one."""
    book = SlotBook(range(1))
    assert book.try_claim() == 0
    assert book.try_share() is None


def test_workers_have_slots_of_their_own() -> None:
    """Two processes that give requests to one engine never name the same slot."""
    assert [SlotBook(range(serial, 4, 2)).try_claim() for serial in range(2)] == [0, 1]


def test_a_slot_is_given_back_once() -> None:
    """The second time is a bug, and says so."""
    book = SlotBook(range(1))
    with pytest.raises(KeyError):
        book.free(0)


def test_a_reload_that_changes_how_many_slots_there_are_keeps_who_has_them() -> None:
    """A slot that is gone is not given again once it is free; one that came is given; none is given twice."""
    book = SlotBook(range(3))
    assert [book.try_claim(), book.try_share()] == [0, 1]
    book.follow(range(1))
    assert book.try_claim() is None
    book.free(1)
    assert book.idle == 0
    book.follow(range(2))
    assert [book.try_claim(), book.try_claim()] == [1, None]
    book.free(0)
    assert book.try_claim() == 0
