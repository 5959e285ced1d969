"""What `headrace cache` prints."""

from rich.console import Console

from headrace.cli.cache import cache_view
from headrace.domain.routing_status import EndpointCache, HitCounts, RoutingStatus


def shown(found: RoutingStatus) -> str:
    console = Console(width=200, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(cache_view(found))
    return capture.get()


def test_hits_are_shown_as_shares() -> None:
    """Tenants, families and endpoints each have their hit ratio; what was not measured says so."""
    counts = HitCounts(
        model="m", name="team-a", requests=4, input_tokens=1000, cached_tokens=250, expected_tokens=300
    )  # fmt: skip
    endpoint = EndpointCache(
        endpoint="p/0", model="m", blocks=7, held_tokens=900, capacity_tokens=4000, trust_ratio=0.9, requests=0,
        input_tokens=0, cached_tokens=0,
    )  # fmt: skip
    text = shown(RoutingStatus(workers=1, tenants=(counts,), families=(counts,), endpoints=(endpoint,)))
    assert text.count("25.0%") == 2
    assert any("p/0" in line and "not measured" in line and "90%" in line for line in text.splitlines())


def test_nothing_measured_is_said() -> None:
    """Before the first answer there is no table of zeros."""
    assert "nothing measured yet" in shown(RoutingStatus(workers=1, tenants=(), families=(), endpoints=()))
