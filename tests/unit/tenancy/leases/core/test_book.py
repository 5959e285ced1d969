import pytest

from headrace.tenancy.leases.core.book import SETTLE_S, ExchangeRefusedError, LeaseBook
from headrace.tenancy.leases.exchange import MEMBERS_MAX, Exchange, LeaseKind, LeaseReport


def message(member: str, serial: int, *reports: LeaseReport, generation: str = "") -> Exchange:
    return Exchange(member, serial, generation, 0, reports)


def slots(need: int, held: int = 0) -> LeaseReport:
    return LeaseReport("l", LeaseKind.SLOTS, 4, held, need, min(need, held + 1), need)


def test_silent_members_die() -> None:
    """A gateway that was not heard of for too long is no member any more, and its slots are free."""
    book = LeaseBook("g", member_s=5.0)
    book.exchange(message("a", 1, slots(4)), 0.0, 0.0)
    assert book.exchange(message("b", 1, slots(4)), 4.9, 0.0).answers[0].grant == 0
    reply = book.exchange(message("b", 2, slots(4)), 5.0, 0.0)
    assert (reply.members, reply.answers[0].grant) == (1, 4)


def test_no_more_members_than_the_bound() -> None:
    """The book is bounded: one process more than it can hold is refused by name, and those inside go on."""
    book = LeaseBook("g", member_s=5.0)
    for index in range(MEMBERS_MAX):
        book.exchange(message(f"m{index}", 1), 0.0, 0.0)
    with pytest.raises(ExchangeRefusedError, match="256 processes"):
        book.exchange(message("one more", 1), 0.0, 0.0)
    assert book.exchange(message("m0", 2), 0.0, 0.0).members == MEMBERS_MAX


def test_who_comes_back_over_another_connection_is_counted_once() -> None:
    """A member that left and repeats its last exchange gets the same answer."""
    book = LeaseBook("g", member_s=5.0)
    first = book.exchange(message("a", 7, slots(2)), 0.0, 0.0)
    book.leave("a")
    assert book.exchange(message("a", 7, slots(2)), 0.1, 0.0) == first


def test_a_book_settles_once() -> None:
    """Members of an earlier book make a fresh one wait, and a late one among them does not make it wait again."""
    book = LeaseBook("g2", member_s=60.0)
    assert book.exchange(message("a", 5, generation="g1"), 0.0, 0.0).is_settling
    assert not book.exchange(message("a", 6, generation="g2"), SETTLE_S, 0.0).is_settling
    assert not book.exchange(message("late", 9, generation="g1"), 5.0, 0.0).is_settling


def test_a_limit_that_members_wait_for_is_called_back() -> None:
    """Whoever holds some of it hears so at its next sign of life."""
    book = LeaseBook("g", member_s=60.0)
    book.exchange(message("a", 1, slots(4)), 0.0, 0.0)
    book.exchange(message("b", 1, slots(4)), 0.0, 0.0)
    assert book.exchange(message("a", 2), 0.1, 0.0).recalls == ("l",)
    assert book.exchange(message("a", 3), 9.0, 0.0).recalls == ()
