"""One endpoint at run time: state, load, connections, and the rules by which use and probes change its state."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

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

ANSWERS = "answers probes"
SHOWN_NAMES = 5
"""Of those that an engine lists, in a message."""
FARES_BY = ("served_model", "first_token_timeout_s", "answer_timeout_s", "stall_timeout_s", "eject_after", "eject_s")
"""Where a pool declares one of these anew, an ejection by the old one is over."""


class Watcher(Protocol):
    """Hears what becomes of endpoints, beside the requests."""

    def failed(self, endpoint: "Endpoint", reason: str) -> None:
        """A request failed by its fault, and it stays in use."""
        ...

    def went_out(self, endpoint: "Endpoint") -> None: ...

    def came_back(self, endpoint: "Endpoint") -> None: ...


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
        "refused_name",
        "remark",
        "requests",
        "salter",
        "seat",
        "since_at",
        "state",
        "told_context_tokens",
        "told_models",
        "told_shape",
        "watcher",
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
        """Longest sequence, as the engine itself says (`listing.py`)."""
        self.told_models: tuple[str, ...] | None = None
        """The names that the engine lists; None: it lists none."""
        self.refused_name = ""
        """Why the engine takes no request of the declared name, by its own word; empty: nothing is known against it."""
        self.remark = ANSWERS
        """Reason of being ready."""
        self.outages = 0
        """How often it went from usable to not ready: a process that comes back after that has an empty KV cache."""
        self.cache_losses: int | None = None
        """Grows with what goes from its KV cache, by its own events; None: they are not read, or some are missing."""
        self.salter: Callable[[str], str] | None = None
        """Makes a tenant's `cache_salt`, where the pool keeps tenants apart in the prefix cache."""
        self.seat: Seat | None = None
        """Its place in hand-overs; None where its model's prompts are never handed over."""
        self.told_shape: KvShape | None = None
        """What its engine says of itself (`self_report.py`); None where it was not asked, or did not answer."""
        self.watcher: Watcher | None = None
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
        """Follow a new plan; counters and connections stay, and the state, unless it came of what has changed."""
        before = self.plan
        self.plan, self.address, self.is_draining = plan, address, address.is_draining
        self.names = (self.endpoint_id, plan.name, plan.engine)
        self._derive()
        if before is plan:
            return
        if plan.served_model != before.served_model:
            self._renamed()
        if any(getattr(plan, name) != getattr(before, name) for name in FARES_BY):
            self.ejected_until_mono_s, self._ejections = 0.0, 0

    def _renamed(self) -> None:
        """What the engine said of the old name does not hold for the declared one."""
        was_out = self.state is EndpointState.NOT_READY and (self.refused_name != "" or self.out_until_mono_s > 0.0)
        self.refused_name, self.remark, self.out_until_mono_s = "", ANSWERS, 0.0
        if not was_out:
            return
        if self.told_models is None or self.plan.served_model in self.told_models:
            self._become(EndpointState.READY, ANSWERS)  # no probe has failed since
        else:
            self._become(EndpointState.NOT_READY, "declared anew, and not asked yet")

    def name_is_refused(self, remedy: str) -> None:
        """The engine has said that it takes no request of the declared name; good probes count for nothing then."""
        is_news = self.refused_name == ""
        self.refused_name = remedy
        is_told = self.out_until_mono_s > 0.0  # with the request that found it out
        if is_news and not is_told and self.state is EndpointState.NOT_READY and self.watcher is not None:
            self.watcher.went_out(self)

    def name_is_good(self, remark: str = ANSWERS) -> None:
        """Nothing is known against the declared name."""
        if self.refused_name:
            self.refused_name, self.out_until_mono_s = "", 0.0
        self.remark = remark

    def name_remedy(self) -> str:
        """Where the operator corrects the name."""
        named = f"pools.{self.plan.name}.served_model is {self.plan.served_model!r}"
        if self.told_models is None:
            return f"{named}: it must be what the engine calls its model"
        shown = ", ".join(self.told_models[:SHOWN_NAMES]) + (", ..." if len(self.told_models) > SHOWN_NAMES else "")
        return f"{named}; the engine lists {shown}"

    def take_over(self, state: EndpointState, reason: str) -> None:
        """Begin in the state in which the endpoint that this one replaces was last seen."""
        self._become(state, reason)

    def probe_said_ready(self, now_mono_s: float) -> None:
        """A probe was answered well. An ejection runs its time first, then one good probe ends it."""
        if self.state is EndpointState.EJECTED and now_mono_s < self.ejected_until_mono_s:
            return
        if self.refused_name:
            self._become(EndpointState.NOT_READY, self.refused_name)
            return
        if now_mono_s < self.out_until_mono_s:
            return
        self.out_until_mono_s = 0.0
        if self.state is EndpointState.EJECTED:
            self.failures_in_a_row = self.plan.eject_after - 1  # on trial: one more failure ejects again
        self._become(EndpointState.READY, self.remark)

    def probe_said_busy(self, reason: str) -> None:
        if self.state in (EndpointState.READY, EndpointState.BUSY):
            self._become(EndpointState.BUSY, reason)

    def probe_said_not_ready(self, reason: str) -> None:
        self.out_until_mono_s = 0.0  # what answers next is another process, or has made up its mind
        if self.nobody_listens:  # the process that failed is gone, and its ejection with it
            self.failures_in_a_row = self._ejections = 0
        if self.nobody_listens or self.state is not EndpointState.EJECTED:
            self._become(EndpointState.NOT_READY, reason)

    def engine_is_out(self, reason: str, now_mono_s: float, *, is_unknown_model: bool = False) -> bool:
        """The engine refuses whatever it is sent, as it shuts down or has no such model, though its probes may go on
        saying that all is well.

        Out at once, until a probe fails (it has gone) or OUT_S have passed. Returns whether that took it out.
        """
        was_usable = self.is_usable
        self.failures += 1
        self.out_until_mono_s = now_mono_s + OUT_S
        self._become(EndpointState.NOT_READY, f"{reason}; {self.name_remedy()}" if is_unknown_model else reason)
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
            self.out_until_mono_s = 0.0  # as where a probe finds nobody
            self._become(EndpointState.NOT_READY, reason)
        elif self.failures_in_a_row >= self.plan.eject_after and self.state is not EndpointState.EJECTED:
            factor = min(2**self._ejections, LONGEST_EJECTION_FACTOR)
            self._ejections = min(self._ejections + 1, 10)
            self.ejected_until_mono_s = now_mono_s + self.plan.eject_s * factor
            self._become(EndpointState.EJECTED, f"{self.failures_in_a_row} failures in a row; last: {reason}")
        is_out_now = was_usable and not self.is_usable
        if not is_out_now and self.watcher is not None:
            self.watcher.failed(self, reason)
        return is_out_now

    def _become(self, state: EndpointState, reason: str) -> None:
        before, was_usable = self.state, self.is_usable
        if state is not before:
            if state is EndpointState.NOT_READY:
                self.outages += 1
            self.since_at = time.time()  # noqa: TID251 (shown to people, never subtracted)
        self.state = state
        self.reason = reason
        self._derive()
        if state is not before and self.watcher is not None and not self.is_draining:
            if self.is_usable and (before is EndpointState.NOT_READY or before is EndpointState.EJECTED):
                self.watcher.came_back(self)
            elif not self.is_usable and (was_usable or not self.plan.is_run_here):
                self.watcher.went_out(self)

    def _derive(self) -> None:
        is_alive = self.state is EndpointState.READY or self.state is EndpointState.BUSY
        self.is_usable = is_alive and not self.is_draining

    def __repr__(self) -> str:
        return f"Endpoint({self.endpoint_id}, {self.state.value}, in_flight={self.in_flight})"
