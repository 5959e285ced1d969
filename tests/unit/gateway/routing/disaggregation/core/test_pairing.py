"""Which engines go together."""

import pytest

from headrace.gateway.routing.disaggregation.core.pairing import Half, Pair, choose_pair


def half(name: str, cost_s: float, *, has_room: bool = True) -> Half:
    return Half(name=name, cost_s=cost_s, has_room=has_room)


def test_the_cheapest_pair_counts_the_way_between_them() -> None:
    """A near prefill engine with a longer queue wins against a far one."""
    ways_s = {("near", "d"): 0.1, ("far", "d"): 2.0}
    found = choose_pair(
        [half("far", 0.5), half("near", 1.0)],
        [half("d", 0.2), half("full", 0.0, has_room=False)],
        fits=lambda _, __: True,
        predict_transfer_s=lambda left, right: ways_s[left, right],
    )
    assert found is not None
    assert ((found.prefill, found.decode), found.transfer_s) == (("near", "d"), 0.1)
    assert found.cost_s == pytest.approx(1.3)


def test_engines_that_do_not_fit_are_no_pair() -> None:
    """Another version, itself, or one without room: None."""
    decodes = [half("d", 0.0), half("p", 0.0), half("full", 0.0, has_room=False)]
    found = choose_pair([half("p", 0.0)], decodes, fits=lambda _, d: d != "d", predict_transfer_s=lambda _, __: 0.0)
    assert found is None


def test_equal_pairs_are_taken_by_name() -> None:
    """The choice among equals does not depend on their order."""
    halves = [half("b", 1.0), half("a", 1.0)]
    found = choose_pair(halves, halves, fits=lambda _, __: True, predict_transfer_s=lambda _, __: 0.0)
    assert found == Pair(prefill="a", decode="b", transfer_s=0.0, cost_s=2.0)
