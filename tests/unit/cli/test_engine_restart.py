"""When a restarted replica counts as back."""

import pytest

from headrace.cli.engine_restart import gets_requests
from headrace.control_api.operations import EndpointSummary


def endpoint(name: str, state: str) -> EndpointSummary:
    return EndpointSummary(
        endpoint=name,
        pool="chat",
        model="m",
        engine="vllm",
        url="http://127.0.0.1:1",
        state=state,
        reason="",
        since_at=0.0,
        in_flight=0,
        requests=0,
        failures=0,
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], False),
        ([endpoint("chat/0", "unknown"), endpoint("chat/1", "ready")], False),
        ([endpoint("chat/0", "ready"), endpoint("chat/1", "unknown")], True),
    ],
)
def test_a_replica_is_back_once_the_gateway_sends_it_requests(seen: list[EndpointSummary], expected: bool) -> None:
    """A request sent right after `engine restart` has returned is not refused."""
    assert gets_requests(seen, "chat/0") is expected
