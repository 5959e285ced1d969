"""All endpoints by pool. Adopting a new plan keeps state, connections and counters of what did not change."""

import asyncio
from collections.abc import Iterator

from headrace.declaration.gateway_plan import EndpointAddress, GatewayPlan, PoolPlan
from headrace.domain.endpoint import EndpointState, EngineKind
from headrace.domain.ids import EndpointId
from headrace.engines.registry import driver_for
from headrace.gateway.endpoints.addresses import make_connections, make_request_heads, make_tls_context
from headrace.gateway.endpoints.cache_salt import Salter
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.outing_log import OutingLog
from headrace.gateway.endpoints.seat import Seats

CONNECTS_BY = (
    *("engine", "bearer", "headers", "connect_timeout_s"),
    *("tls_ca", "tls_certificate", "tls_key", "tls_server_name"),
)
"""Where a pool declares one of these anew, its endpoints get connections of their own."""


class EndpointDirectory:
    """The endpoints that exist now. Concurrency: event loop only; lists are replaced, never changed in place."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, salter: Salter | None = None, seats: Seats | None = None
    ) -> None:
        self._loop = loop
        self._salter = salter
        self._seats = seats
        self._log = OutingLog()
        self._by_pool: dict[str, tuple[Endpoint, ...]] = {}
        self.version = 0
        """Grows whenever a pool may have other endpoints than before."""
        self._plans: dict[str, PoolPlan] = {}
        self._resolved: dict[str, tuple[EndpointAddress, ...]] = {}
        """What DNS discovery found, by pool."""

    def prepare(self, plan: GatewayPlan) -> "Adoption":
        """Build what `plan` needs without touching what runs. Raises: PlanError."""
        adoption = Adoption(plans={pool.name: pool for pool in plan.pools})
        for pool in plan.pools:
            adoption.by_pool[pool.name] = self._endpoints_of(pool, self._addresses(pool), adoption)
        return adoption

    def adopt(self, adoption: "Adoption") -> None:
        """Put a prepared plan in force, in one turn of the loop."""
        before = set(self)
        for endpoint, pool, address in adoption.kept:
            endpoint.adopt(pool, address)
        for endpoint in (endpoint for endpoints in adoption.by_pool.values() for endpoint in endpoints):
            endpoint.salter = self._salter if adoption.plans[endpoint.plan.name].isolates_tenants else None
            if self._seats is not None:
                endpoint.seat = self._seats.seat_for(endpoint.plan, endpoint.address.url)
        self._by_pool, self._plans = adoption.by_pool, adoption.plans
        self.version += 1
        self._resolved = {pool: found for pool, found in self._resolved.items() if pool in self._plans}
        for endpoint in before - set(self):
            endpoint.connections.close()

    def resolved(self, pool: str, addresses: tuple[EndpointAddress, ...]) -> None:
        """DNS discovery found these addresses for `pool`: use them, and no others."""
        plan = self._plans.get(pool)
        if plan is None:
            return
        self._resolved[pool] = addresses
        adoption = Adoption(plans=self._plans)
        adoption.by_pool.update(self._by_pool)
        adoption.by_pool[pool] = self._endpoints_of(plan, addresses, adoption)
        self.adopt(adoption)

    def of_pool(self, pool: str) -> tuple[Endpoint, ...]:
        return self._by_pool.get(pool, ())

    def plans(self) -> tuple[PoolPlan, ...]:
        return tuple(self._plans.values())

    def sweep(self, now_mono_s: float) -> None:
        for endpoint in self:
            endpoint.connections.sweep(now_mono_s)

    def __iter__(self) -> Iterator[Endpoint]:
        for endpoints in self._by_pool.values():
            yield from endpoints

    def _addresses(self, pool: PoolPlan) -> tuple[EndpointAddress, ...]:
        if pool.discover == "dns":
            return self._resolved.get(pool.name, ())
        return pool.endpoints

    def _endpoints_of(
        self, pool: PoolPlan, addresses: tuple[EndpointAddress, ...], adoption: "Adoption"
    ) -> tuple[Endpoint, ...]:
        known = {endpoint.endpoint_id: endpoint for endpoint in self._by_pool.get(pool.name, ())}
        driver = driver_for(EngineKind(pool.engine))
        tls = make_tls_context(pool) if any(address.url.startswith("https:") for address in addresses) else None
        endpoints: list[Endpoint] = []
        for address in addresses:
            endpoint_id = EndpointId(address.endpoint)
            old = known.get(endpoint_id)
            if old is not None and _connects_alike(old.plan, pool) and _is_same_place(old.address, address):
                adoption.kept.append((old, pool, address))
                endpoints.append(old)
                continue
            connections = make_connections(address, pool, tls, self._loop)
            heads = make_request_heads(address, pool, driver)
            endpoint = Endpoint(endpoint_id, address, pool, driver, connections, heads)
            if old is not None and _is_same_place(old.address, address):  # only trust or credentials changed
                endpoint.take_over(old.state, old.reason)
                endpoint.told_shape = old.told_shape
            endpoint.watcher = self._log
            endpoints.append(endpoint)
        return tuple(endpoints)


class Adoption:
    """A plan's endpoints, built and ready to be put in force; nothing that runs has changed yet."""

    def __init__(self, *, plans: dict[str, PoolPlan]) -> None:
        self.plans = plans
        self.by_pool: dict[str, tuple[Endpoint, ...]] = {}
        self.kept: list[tuple[Endpoint, PoolPlan, EndpointAddress]] = []
        """Running endpoints that stay, with what changes about them."""


def _connects_alike(old: PoolPlan, new: PoolPlan) -> bool:
    """Whether existing connections still follow the declaration."""
    return all(getattr(old, name) == getattr(new, name) for name in CONNECTS_BY)


def _is_same_place(old: EndpointAddress, new: EndpointAddress) -> bool:
    return old.url == new.url and old.ip == new.ip


def count_states(endpoints: tuple[Endpoint, ...]) -> dict[EndpointState, int]:
    """How many endpoints are in each state, for messages that say why nothing is ready."""
    counts: dict[EndpointState, int] = {}
    for endpoint in endpoints:
        state = EndpointState.DRAINING if endpoint.is_draining else endpoint.state
        counts[state] = counts.get(state, 0) + 1
    return counts
