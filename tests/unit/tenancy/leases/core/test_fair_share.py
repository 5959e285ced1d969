from headrace.tenancy.leases.core.fair_share import TURN_S, fair_shares


def test_modest_members_get_what_they_ask_for() -> None:
    """Who needs little gets it all; the others share the rest alike."""
    assert fair_shares(10, {"a": 1, "b": 20, "c": 20}, 0.0) == {"a": 1, "b": 5, "c": 4}


def test_what_cannot_be_divided_goes_round() -> None:
    """A single slot that two gateways need is each one's in turn."""
    turns = [fair_shares(1, {"a": 5, "b": 5}, turn * TURN_S) for turn in range(4)]
    assert turns == [{"a": 1, "b": 0}, {"a": 0, "b": 1}] * 2


def test_nothing_is_shared_of_nothing() -> None:
    """A limit of 0, or one in debt, gives nobody a share."""
    assert fair_shares(0, {"a": 3}, 0.0) == {"a": 0}
    assert fair_shares(-2, {"a": 3}, 0.0) == {"a": 0}
