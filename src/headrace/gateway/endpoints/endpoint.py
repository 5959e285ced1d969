"""One endpoint at run time: state, load, connections, and the rules by which use and probes change its state."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.declaration.gateway_plan import EndpointAddress, PoolPlan
from headrace.domain.endpoint import EndpointState
from headrace.domain.ids import EndpointId
from headrace.engines.contract import Driver
from headrace.engines.kv_shape import KvShape
from headrace.gateway.endpoints.load import EndpointLoad
from headrace.gateway.endpoints.seat import Seat
from headrace.gateway.http.connection_pool import ConnectionPool

OUT_S = 60.0
"""An engine that said it shuts down, or has no such model, is tried again after so long, where no probe has failed by
then. Chosen: longer than most drains."""
LONGEST_EJECTION_FACTOR = 16
"""An endpoint that fails again and again is left out for at most so many times `eject_s`. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHeads:
    """Parts of the request head that are the same for every request to one endpoint, as bytes."""

    prefix: bytes
    """URL path prefix, mostly empty."""
    lines: bytes
    """host, credentials, content-type and the driver's own header lines."""


class Endpoint:
    """One addressable engine.

    Concurrency: event loop only. `in_flight` counts requests from the pick to the end of their last attempt here.
    """

    __slots__ = (
        "_ejections",
        "address",
        "cache_losses",
        "connections",
        "driver",
        "ejected_until_mono_s",
        "endpoint_id",
        "failures",
        "failures_in_a_row",
        "heads",
        "in_flight",
        "is_draining",
        "is_silent",
        "is_usable",
        "last_byte_mono_s",
        "load",
        "names",
        "nobody_listens",
        "out_until_mono_s",
        "outages",
        "plan",
        "reason",
        "requests",
        "salter",
        "seat",
        "since_at",
        "state",
        "told_context_tokens",
        "told_shape",
    )

    def __init__(
        self,
        endpoint_id: EndpointId,
        address: EndpointAddress,
        plan: PoolPlan,
        driver: Driver,
        connections: ConnectionPool,
        heads: RequestHeads,
    ) -> None:
        self.endpoint_id = endpoint_id
        self.address = address
        self.plan = plan
        self.driver = driver
        self.names = (endpoint_id, plan.name, plan.engine)
        """Its own, its pool's and its engine's, for accounts."""
        self.connections = connections
        self.heads = heads
        self.state = EndpointState.UNKNOWN
        self.reason = "not probed yet"
        self.since_at = time.time()  # noqa: TID251 (shown to people, never subtracted)
        self.in_flight = 0
        self.load = EndpointLoad()
        self.requests = 0
        self.failures = 0
        self.failures_in_a_row = 0
        self.is_draining = address.is_draining
        self.is_usable = False
        """May be given requests. A busy endpoint may: late probes are no reason to leave it out (PAINS 11).

        Follows from state and draining; kept as a value, since routing reads it for every candidate of every request.
        """
        self.last_byte_mono_s = 0.0
        """When an engine's byte last arrived here, for any request: progress that a busy engine shows."""
        self.ejected_until_mono_s = 0.0
        self.out_until_mono_s = 0.0
        """Until then good probes are not believed: the engine has said that it takes no request of the model."""
        self.nobody_listens = False
        """The last probe found no listener: it drains, or it is dead while a connection of it still stands."""
        self.is_silent = False
        """Its last probes went unanswered and no request made progress: it hangs, whatever its state says."""
        self.told_context_tokens: int | None = None
        """Longest sequence, as the engine itself says (`context.py`)."""
        self.outages = 0
        """How often it went from usable to not ready: a process that comes back after that has an empty KV cache."""
        self.cache_losses: int | None = None
        """Grows whenever something has gone from its KV cache, by its own events; None: they are not read, or some are
        missing."""
        self.salter: Callable[[str], str] | None = None
        """Makes a tenant's `cache_salt`, where the pool keeps tenants apart in the prefix cache."""
        self.seat: Seat | None = None
        """Its place in hand-overs; None where its model's prompts are never handed over."""
        self.told_shape: KvShape | None = None
        """What its engine says of itself (`self_report.py`); None where it was not asked, or did not answer."""
        self._ejections = 0

    @property
    def is_last_resort(self) -> bool:
        """Ejected for failures, but not known to be dead or to hang."""
        return not self.is_draining and not self.is_silent and self.state is EndpointState.EJECTED

    @property
    def context_tokens(self) -> int | None:
        """Longest sequence that it can hold, prompt and answer; None: not known."""
        told = self.told_context_tokens
        return self.plan.context_tokens if told is None else told

    def is_deserted(self, *, can_move: bool) -> bool:
        """Whether a silent answer from here is given up soon: nobody listens, or, where the answer can go on elsewhere,
        probes have found the endpoint not to be in order.
        """
        return self.nobody_listens or (can_move and (self.is_silent or self.state is EndpointState.NOT_READY))

    def adopt(self, plan: PoolPlan, address: EndpointAddress) -> None:
        """Follow a new plan; state, counters and connections stay."""
        self.plan, self.address, self.is_draining = plan, address, address.is_draining
        self.names = (self.endpoint_id, plan.name, plan.engine)
        self._derive()

    def take_over(self, state: EndpointState, reason: str) -> None:
        """Begin in the state in which the endpoint that this one replaces was last seen."""
        self._become(state, reason)

    def probe_said_ready(self, now_mono_s: float) -> None:
        """A probe was answered well. An ejection runs its time first, then one good probe ends it."""
        if self.state is EndpointState.EJECTED and now_mono_s < self.ejected_until_mono_s:
            return
        if now_mono_s < self.out_until_mono_s:
            return
        if self.state is EndpointState.EJECTED:
            self.failures_in_a_row = self.plan.eject_after - 1  # on trial: one more failure ejects again
        self._become(EndpointState.READY, "answers probes")

    def probe_said_busy(self, reason: str) -> None:
        if self.state in (EndpointState.READY, EndpointState.BUSY):
            self._become(EndpointState.BUSY, reason)

    def probe_said_not_ready(self, reason: str) -> None:
        self.out_until_mono_s = 0.0  # what answers next is another process, or has made up its mind
        if self.nobody_listens:  # the process that failed is gone, and its ejection with it
            self.failures_in_a_row = self._ejections = 0
        if self.nobody_listens or self.state is not EndpointState.EJECTED:
            self._become(EndpointState.NOT_READY, reason)

    def engine_is_out(self, reason: str, now_mono_s: float) -> bool:
        """The engine refuses whatever it is sent, as it shuts down or has no such model, though its probes may go on
        saying that all is well.

        Out at once, until a probe fails (it has gone) or OUT_S have passed. Returns whether that took it out.
        """
        was_usable = self.is_usable
        self.failures += 1
        self.out_until_mono_s = now_mono_s + OUT_S
        self._become(EndpointState.NOT_READY, reason)
        return was_usable

    def request_succeeded(self) -> None:
        self.failures_in_a_row = 0
        self._ejections = 0

    def request_failed(self, reason: str, now_mono_s: float, *, is_refused: bool) -> bool:
        """Count a failure that is the engine's; return True where it takes the endpoint out.

        1. A refused connection is proof: nobody listens, out at once until a probe succeeds.
        2. `eject_after` failures in a row: out for `eject_s`, doubling each time.
        """
        self.failures += 1
        self.failures_in_a_row += 1
        was_usable = self.is_usable
        if is_refused:
            self._become(EndpointState.NOT_READY, reason)
        elif self.failures_in_a_row >= self.plan.eject_after and self.state is not EndpointState.EJECTED:
            factor = min(2**self._ejections, LONGEST_EJECTION_FACTOR)
            self._ejections = min(self._ejections + 1, 10)
            self.ejected_until_mono_s = now_mono_s + self.plan.eject_s * factor
            self._become(EndpointState.EJECTED, f"{self.failures_in_a_row} failures in a row; last: {reason}")
        return was_usable and not self.is_usable

    def _become(self, state: EndpointState, reason: str) -> None:
        if state is not self.state:
            if state is EndpointState.NOT_READY:
                self.outages += 1
            self.since_at = time.time()  # noqa: TID251 (shown to people, never subtracted)
        self.state = state
        self.reason = reason
        self._derive()

    def _derive(self) -> None:
        is_alive = self.state is EndpointState.READY or self.state is EndpointState.BUSY
        self.is_usable = is_alive and not self.is_draining

    def __repr__(self) -> str:
        return f"Endpoint({self.endpoint_id}, {self.state.value}, in_flight={self.in_flight})"
