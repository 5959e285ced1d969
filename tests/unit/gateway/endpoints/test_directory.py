"""What a new plan changes about endpoints that stay, and what it leaves as it is."""

import asyncio
from typing import Any

import structlog
from tests.harness.running_gateway import addresses_of, declare, remote_pool

from headrace.declaration.gateway_plan import GatewayPlan, compile_gateway_plan
from headrace.domain.endpoint import EndpointState
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.outing_log import LINES

NOW_MONO_S = 1000.0


def planned(**pool: Any) -> GatewayPlan:
    declaration = declare({"p": remote_pool("http://127.0.0.1:9", **pool)})
    return compile_gateway_plan(declaration, addresses_of(declaration), revision=1)


def adopted(directory: EndpointDirectory, **pool: Any) -> Endpoint:
    directory.adopt(directory.prepare(planned(**pool)))
    (endpoint,) = directory.of_pool("p")
    return endpoint


def ejected(endpoint: Endpoint) -> Endpoint:
    endpoint.probe_said_ready(NOW_MONO_S)
    for _ in range(endpoint.plan.eject_after):
        endpoint.request_failed("status 500", NOW_MONO_S, is_refused=False)
    assert endpoint.state is EndpointState.EJECTED
    return endpoint


async def test_an_ejection_by_bounds_that_were_corrected_is_over() -> None:
    """A first-token bound that was too short has ejected it: with a longer one the next good probe brings it back."""
    directory = EndpointDirectory(asyncio.get_running_loop())
    endpoint = ejected(adopted(directory, first_token_timeout_s=0.1))
    assert adopted(directory, first_token_timeout_s=0.1) is endpoint
    endpoint.probe_said_ready(NOW_MONO_S)
    assert endpoint.state is EndpointState.EJECTED, "the same plan again changes nothing"
    assert adopted(directory, first_token_timeout_s=60) is endpoint
    endpoint.probe_said_ready(NOW_MONO_S)
    assert endpoint.state is EndpointState.READY


async def test_another_bound_for_connecting_is_in_force_at_once() -> None:
    """It is part of an endpoint's connections, which are made anew for it; its state stays."""
    directory = EndpointDirectory(asyncio.get_running_loop())
    before = adopted(directory, connect_timeout_s=1)
    before.probe_said_ready(NOW_MONO_S)
    after = adopted(directory, connect_timeout_s=7)
    assert after is not before
    assert after.state is EndpointState.READY


async def test_an_engine_that_shuts_down_is_not_brought_back_by_an_unrelated_change() -> None:
    """Only another name ends what was said of the name."""
    directory = EndpointDirectory(asyncio.get_running_loop())
    endpoint = adopted(directory)
    endpoint.probe_said_ready(NOW_MONO_S)
    endpoint.engine_is_out("it shuts down", NOW_MONO_S)
    assert adopted(directory, first_token_timeout_s=60) is endpoint
    endpoint.probe_said_ready(NOW_MONO_S)
    assert endpoint.state is EndpointState.NOT_READY
    assert not adopted(directory, first_token_timeout_s=60).is_usable


async def test_an_endpoint_that_flaps_does_not_fill_the_log() -> None:
    """Each outing has its line with the reason, up to a bound for each endpoint."""
    with structlog.testing.capture_logs() as lines:
        endpoint = adopted(EndpointDirectory(asyncio.get_running_loop()))
        for _ in range(50):
            endpoint.probe_said_ready(NOW_MONO_S)
            endpoint.request_failed("refused", NOW_MONO_S, is_refused=True)
    assert len(lines) == LINES
    assert (lines[0]["event"], lines[0]["reason"]) == ("an endpoint is out of use", "refused")
