"""Tickets that were used."""

from headrace.gateway.handover.core.tickets import SpentTickets


def test_a_ticket_is_good_once() -> None:
    """The second use of a key is refused."""
    spent = SpentTickets()
    assert [spent.try_spend(key) for key in ("a", "a", "b")] == [True, False, True]


def test_the_oldest_are_forgotten() -> None:
    """Memory is bounded: after so many newer ones a key is no longer known."""
    spent = SpentTickets(kept=2)
    assert [spent.try_spend(key) for key in ("a", "b", "c", "a")] == [True] * 4
    assert len(spent) == 2
