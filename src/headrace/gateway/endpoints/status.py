"""Every endpoint as its worker sees it, for whoever asks."""

from collections.abc import Iterable

from headrace.domain.endpoint import EndpointState
from headrace.domain.worker import EndpointStatus
from headrace.gateway.endpoints.endpoint import Endpoint


def endpoint_statuses(endpoints: Iterable[Endpoint]) -> tuple[EndpointStatus, ...]:
    """Return one row per endpoint."""
    return tuple(
        EndpointStatus(
            endpoint=endpoint.endpoint_id,
            pool=endpoint.plan.name,
            engine=endpoint.plan.engine,
            state=(EndpointState.DRAINING if endpoint.is_draining else endpoint.state).value,
            reason=endpoint.reason,
            since_at=endpoint.since_at,
            in_flight=endpoint.in_flight,
            requests=endpoint.requests,
            failures=endpoint.failures,
            version=None if endpoint.told_shape is None else endpoint.told_shape.version,
        )
        for endpoint in endpoints
    )
