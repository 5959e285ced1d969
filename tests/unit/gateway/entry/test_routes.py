"""The served paths, and no others."""

import pytest

from headrace.domain.errors import ErrorCode
from headrace.gateway.entry.routes import ONE_MODEL, ROUTES, find_route, refusal_of


@pytest.mark.parametrize("path", [b"/", b"/v1/models/", b"/v1/chat/completions/", b"//v1/models", b"/slots", b"*", b""])
def test_other_paths_are_not_served(path: bytes) -> None:
    """An engine's own paths, and near misses, end here."""
    refused = refusal_of(find_route(path), b"GET")
    assert refused is not None
    assert refused.code is ErrorCode.ROUTE_NOT_FOUND


def test_a_model_may_have_slashes_in_its_name() -> None:
    """As models from hubs do."""
    assert find_route(b"/v1/models/org/name") is ONE_MODEL


@pytest.mark.parametrize("path", list(ROUTES))
def test_another_method_is_told_what_is_allowed(path: bytes) -> None:
    """405 with Allow; OPTIONS and the route's own methods pass."""
    route = ROUTES[path]
    refused = refusal_of(route, b"DELETE")
    assert refused is not None
    assert refused.code is ErrorCode.METHOD_NOT_ALLOWED
    assert refused.allow == ", ".join([*(method.decode() for method in route.methods), "OPTIONS"])
    assert all(refusal_of(route, method) is None for method in (*route.methods, b"OPTIONS"))
