"""All deliveries of one worker: starts them, watches their clocks, ends what is left when the worker must go."""

from headrace.domain.errors import ErrorCode, RequestError
from headrace.gateway.endpoints.load import Claim
from headrace.gateway.forwarding.delivery import Delivery
from headrace.gateway.forwarding.phase import ENDED
from headrace.gateway.forwarding.tending import tend

ASLEEP_S = 1.0
"""Sweeps come four times a second: one that comes later than this says that the process did not run. Chosen."""


class Dispatcher:
    """Keeps the deliveries that have not ended. Concurrency: event loop only."""

    def __init__(self) -> None:
        self._active: set[Delivery] = set()
        self._swept_mono_s = 0.0

    def dispatch(self, delivery: Delivery, claim: Claim | None = None) -> None:
        """Start a delivery, where it was claimed, and watch it to its end."""
        self._active.add(delivery)
        delivery.start(claim)

    def hold(self, delivery: Delivery) -> None:
        """Watch a delivery that waits to be started: its caller may leave, its deadline may pass."""
        self._active.add(delivery)
        delivery.hold()

    def forget(self, delivery: Delivery) -> None:
        """A delivery has ended; what is left of its engine's answer is still watched."""
        if delivery.phase is ENDED:
            self._active.discard(delivery)

    def sweep(self, now_mono_s: float) -> None:
        """Let every delivery look at its clocks, unless the process was kept from running: what came meanwhile has not
        been read yet, and nobody is blamed for our own silence.
        """
        since_s, self._swept_mono_s = now_mono_s - self._swept_mono_s, now_mono_s
        if since_s > ASLEEP_S:
            return
        for delivery in list(self._active):
            try:
                tend(delivery, now_mono_s)
            except Exception as bug:  # noqa: BLE001 (boundary of one request)
                delivery.crashed(bug)
            if delivery.is_over:
                self._active.discard(delivery)

    def end_all(self) -> None:
        """The drain bound has passed: end what is left with an error the caller can see."""
        for delivery in list(self._active):
            delivery.end(RequestError(ErrorCode.DRAINING, "the gateway is shutting down; send the request again"))
        self._active.clear()

    @property
    def active(self) -> int:
        return len(self._active)
