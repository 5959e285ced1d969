"""Counts of several gateway workers, added up."""

from headrace.domain.routing_status import EndpointCache, HitCounts, RoutingStatus, add_up


def worker(name: str, *, held: int, cached: int) -> RoutingStatus:
    counts = HitCounts(model="m", name=name, requests=1, input_tokens=100, cached_tokens=cached, expected_tokens=50)
    endpoint = EndpointCache(
        endpoint="p/0", model="m", blocks=held, held_tokens=held, capacity_tokens=9, trust_ratio=1.0, requests=1,
        input_tokens=100, cached_tokens=cached,
    )  # fmt: skip
    return RoutingStatus(workers=1, tenants=(counts,), families=(), endpoints=(endpoint,))


def test_hits_are_added_and_the_fuller_view_of_an_endpoint_is_kept() -> None:
    """Two workers' answers of one tenant are one row; of an endpoint's cache, what most is known of is shown."""
    found = add_up([worker("a", held=3, cached=10), worker("a", held=5, cached=30), worker("b", held=1, cached=0)])
    assert found.workers == 3
    assert [(each.name, each.requests, each.cached_tokens) for each in found.tenants] == [("a", 2, 40), ("b", 1, 0)]
    (endpoint,) = found.endpoints
    assert (endpoint.held_tokens, endpoint.requests, endpoint.cached_tokens) == (5, 3, 40)
    assert found.tenants[0].prefix_hit_ratio == 0.2
