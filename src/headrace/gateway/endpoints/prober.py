"""Active probes: asks each endpoint's ready path again and again, in a task each, so that a hung one blocks nobody.

A probe that times out means *busy* while the endpoint makes progress for others, *not ready* once it does not.
"""

import asyncio
from functools import partial
from time import monotonic

from headrace.engines.contract import ProbeReply, ProbeVerdict
from headrace.gateway.endpoints.connection_reasons import explain
from headrace.gateway.endpoints.directory import EndpointDirectory
from headrace.gateway.endpoints.endpoint import Endpoint
from headrace.gateway.endpoints.listing import Listing
from headrace.gateway.endpoints.questions import ask
from headrace.gateway.endpoints.self_report import Inquiry
from headrace.gateway.tasks import keep

RECONCILE_S = 0.2
"""How soon a new endpoint gets its first probe, and a removed one loses its task. Chosen."""
RECOVERY_S = 0.5
"""Between probes of an endpoint that is not usable: it may be starting right now. Chosen."""
TIMEOUTS_TO_NOT_READY = 2
"""Unanswered probes in a row, without progress, that take an endpoint out. Source: PAINS 10."""
BODY_BYTES = 65536
"""Probe bodies are small; more is cut off."""


class Prober:
    """Keeps one probing task per endpoint of the directory."""

    def __init__(self, directory: EndpointDirectory) -> None:
        self._directory = directory
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Follow the directory until cancelled."""
        try:
            while True:
                self._reconcile()
                await asyncio.sleep(RECONCILE_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()

    def _reconcile(self) -> None:
        wanted = set(self._directory)
        for endpoint in wanted - self._tasks.keys():
            self._tasks[endpoint] = keep(partial(self._probe_for_ever, endpoint), f"probe {endpoint.endpoint_id}")
        for endpoint in self._tasks.keys() - wanted:
            self._tasks.pop(endpoint).cancel()

    async def _probe_for_ever(self, endpoint: Endpoint) -> None:
        timeouts, inquiry, listing = 0, Inquiry(), Listing()
        while True:
            reply = await self.ask(endpoint)
            timeouts = timeouts + 1 if reply.is_timeout else 0
            if endpoint.driver.read_probe(reply) is ProbeVerdict.READY:
                # Before it is used: it may have come back as another version, or with another model.
                if _hands_over(endpoint):
                    await inquiry.learn(endpoint)
                if listing.is_due(endpoint) and await listing.look(endpoint):
                    self._directory.version += 1
            self._judge(endpoint, reply, timeouts)
            await self._pause(endpoint)

    async def _pause(self, endpoint: Endpoint) -> None:
        """Wait until the next probe is due: the declared interval, or RECOVERY_S while the endpoint is not usable.

        Looked at in small steps, since a request may take an endpoint out in the middle of a long interval, or a plan
        give it another name.
        """
        begun, name = monotonic(), endpoint.plan.served_model
        while monotonic() - begun < endpoint.plan.probe_interval_s:
            await asyncio.sleep(min(RECOVERY_S, endpoint.plan.probe_interval_s))
            if not endpoint.is_usable or endpoint.plan.served_model != name:
                return

    async def ask(self, endpoint: Endpoint) -> ProbeReply:
        """Send one probe and wait for its reply, at most `probe.timeout_s`."""
        plan = endpoint.plan
        return await ask(endpoint, endpoint.driver.ready_path, timeout_s=plan.probe_timeout_s, body_bytes=BODY_BYTES)

    def _judge(self, endpoint: Endpoint, reply: ProbeReply, timeouts: int) -> None:
        endpoint.nobody_listens, endpoint.is_silent = reply.is_refused, False
        verdict = endpoint.driver.read_probe(reply)
        if verdict is ProbeVerdict.READY:
            endpoint.probe_said_ready(monotonic())
        elif verdict is ProbeVerdict.BUSY or reply.is_timeout:
            plan = endpoint.plan
            quiet_s = monotonic() - endpoint.last_byte_mono_s
            makes_progress = quiet_s < 2 * (plan.probe_interval_s + plan.probe_timeout_s)
            if makes_progress or timeouts < TIMEOUTS_TO_NOT_READY:
                endpoint.probe_said_busy(f"probe got no answer within {plan.probe_timeout_s:g} s, requests progress")
            else:
                endpoint.is_silent = True
                endpoint.probe_said_not_ready(f"{timeouts} probes without an answer, and no progress")
        elif verdict is ProbeVerdict.LOADING:
            endpoint.probe_said_not_ready("loading")
        elif reply.is_refused:
            reason = explain(reply.detail, endpoint.plan, endpoint.address.url)
            endpoint.probe_said_not_ready(f"no connection: {reason}")
        elif reply.status is None:
            reason = explain(reply.detail, endpoint.plan, endpoint.address.url)
            endpoint.probe_said_not_ready(f"probe failed: {reason}")
        else:
            hint = f"; pools.{endpoint.plan.name}.credentials" if reply.status in (401, 403) else ""
            endpoint.probe_said_not_ready(f"probe failed: status {reply.status}{hint}")


def _hands_over(endpoint: Endpoint) -> bool:
    return endpoint.seat is not None and endpoint.seat.words is not None
