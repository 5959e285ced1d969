"""Hits by tenant and family."""

from headrace.gateway.routing.core.tallies import MAX_FAMILIES, Tallies


def test_families_that_nobody_uses_are_forgotten() -> None:
    """Prompts that never repeat cannot fill memory; tenants' counts stay whole."""
    tallies = Tallies()
    for family in range(MAX_FAMILIES + 50):
        tallies.add("m", "t", family, input_tokens=10, cached_tokens=4, expected_tokens=5.0)
        tallies.add("m", "t", 0, input_tokens=10, cached_tokens=4, expected_tokens=5.0)
    assert len(tallies.by_family) == MAX_FAMILIES
    assert ("m", 0) in tallies.by_family
    assert tallies.by_tenant["m", "t"].requests == 2 * (MAX_FAMILIES + 50)
    tallies.add("m", "t", None, input_tokens=10, cached_tokens=0, expected_tokens=0.0)
    assert len(tallies.by_family) == MAX_FAMILIES
