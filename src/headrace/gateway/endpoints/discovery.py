"""DNS discovery: resolves each host of a `discover: dns` pool again and again, and uses every address it has.

For headless Services of Kubernetes and the like: routing needs the pods, not a virtual address.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import urlsplit

import structlog

from headrace.declaration.gateway_plan import EndpointAddress, PoolPlan
from headrace.gateway.endpoints.addresses import PlanError
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.tasks import keep

RECONCILE_S = 0.2
"""How soon a new pool is resolved for the first time. Chosen."""
log = structlog.get_logger("headrace.gateway")
Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""The IP addresses of a host; raises OSError where the look-up fails."""


class DnsDiscovery:
    """Keeps one resolving task per pool that asks for it. A failed look-up keeps the last addresses."""

    def __init__(
        self, directory: EndpointDirectory, loop: asyncio.AbstractEventLoop, resolve: Resolve | None = None
    ) -> None:
        self._directory = directory
        self._loop = loop
        self._look_up: Resolve = resolve or self._ask_system
        self._tasks: dict[str, tuple[PoolPlan, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follow the directory's plans until cancelled."""
        try:
            while True:
                self._reconcile()
                await asyncio.sleep(RECONCILE_S)
        finally:
            for _, task in self._tasks.values():
                task.cancel()
            self._tasks.clear()

    def _reconcile(self) -> None:
        wanted = {plan.name: plan for plan in self._directory.plans() if plan.discover == "dns"}
        for name in list(self._tasks):
            plan, task = self._tasks[name]
            if wanted.get(name) != plan:
                task.cancel()
                del self._tasks[name]
        for name in wanted.keys() - self._tasks.keys():
            task = keep(partial(self._resolve_for_ever, wanted[name]), f"discover {name}")
            self._tasks[name] = (wanted[name], task)

    async def _resolve_for_ever(self, plan: PoolPlan) -> None:
        while True:
            try:
                addresses = await self._resolve(plan)
            except OSError as error:
                log.warning("DNS look-up failed, keeping the last addresses", pool=plan.name, error=str(error))
            else:
                self._use(plan, addresses)
            await asyncio.sleep(plan.discover_interval_s)

    def _use(self, plan: PoolPlan, addresses: tuple[EndpointAddress, ...]) -> None:
        try:
            self._directory.resolved(plan.name, addresses)
        except PlanError as error:  # its trust files are read anew; one being replaced is whole at the next look-up
            log.warning("addresses found but not usable, keeping the last", pool=plan.name, error=str(error))

    async def _ask_system(self, host: str, port: int) -> tuple[str, ...]:
        answers = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return tuple(str(sockaddr[0]) for *_, sockaddr in answers)

    async def _resolve(self, plan: PoolPlan) -> tuple[EndpointAddress, ...]:
        found: dict[str, EndpointAddress] = {}
        for declared in plan.endpoints:
            url = urlsplit(declared.url)
            port = url.port or (443 if url.scheme == "https" else 80)
            for address in await self._look_up(url.hostname or "", port):
                shown = f"[{address}]" if ":" in address else address
                endpoint = f"{plan.name}/{shown}:{port}"
                found[endpoint] = EndpointAddress(endpoint=endpoint, url=declared.url, ip=address)
        return tuple(found[name] for name in sorted(found))
