"""How one hand-over went: what routing learns from, and metrics count."""

from dataclasses import dataclass

from headrace.gateway.handover.core.events import HandoverEnd, HandoverFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverReport:
    """Times are None where a step did not come to its end. Units: seconds."""

    how: HandoverEnd
    failure: HandoverFailure | None
    prefill_s: float | None
    """Sent until answered, the engine's queue included."""
    transfer_s: float | None
    """Of engines that do not tell it apart: decode sent until its first token, less its first step as expected."""
    decode_wait_s: float | None
    """Until decode had a place, and from there to its first token, as far as that is not transfer."""
