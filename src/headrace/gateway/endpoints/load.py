"""What one endpoint has to do, in tokens: what we have sent it and not got back, and what it says of itself.

Own counts are exact and always there; the engine's numbers are late and may stop coming, so they only ever correct
the own ones while they are fresh (PAINS 23). Read by admission (room) and routing (scores).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

FRESH_INTERVALS = 3.0
"""An engine's numbers count for so many reading intervals; then only ours do. Chosen: one lost reading is no alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLoad:
    """One reading of an engine's metrics; None where its page has no such number."""

    at_mono_s: float
    running: float | None
    waiting: float | None
    kv_utilization_ratio: float | None
    kv_capacity_tokens: float | None
    in_flight: int
    """Ours, at that moment: the rest of what it runs is other gateways' and workers'."""
    ended: int = 0
    """Ours that have ended there, ever."""

    @property
    def foreign(self) -> int:
        """Requests at the engine that are not ours, by this page and our own count, which is a little younger; 0 where
        that is not known. `EndpointLoad.foreign` is what to believe."""
        if self.running is None:
            return 0
        return max(0, int(self.running + (self.waiting or 0.0)) - self.in_flight)


READINGS = 3
"""Of so many readings the one with the fewest foreign requests counts. Chosen."""


class EndpointLoad:
    """Counts of one endpoint. Units: tokens, as estimated at entry. Concurrency: event loop only."""

    __slots__ = (
        "_foreign",
        "ended",
        "foreign",
        "fresh_for_s",
        "has_limit",
        "held_limit_tokens",
        "held_tokens",
        "listener",
        "measured",
        "miss_ratio",
        "prefill_limit_tokens",
        "prefill_tokens",
        "prefilling",
        "restarts",
        "sequences_limit",
        "settings",
    )

    def __init__(self) -> None:
        self.prefill_tokens = 0
        """Input tokens of requests whose first token has not come."""
        self.prefilling = 0
        """Those requests."""
        self.held_tokens = 0
        """Input and output tokens, so far, of requests whose first token has come."""
        self.ended = 0
        """Attempts that have ended, however."""
        self.miss_ratio = 1.0
        """Share of prompt tokens that the engine had to compute lately, the rest came from its prefix cache."""
        self.measured: MeasuredLoad | None = None
        self.foreign = 0
        """Requests there that are not ours: the fewest that the last readings show, since what ended while the page was
        on its way looks like somebody else's."""
        self._foreign: deque[int] = deque([0] * (READINGS - 1), maxlen=READINGS)
        self.fresh_for_s = 0.0
        self.settings: Mapping[str, str] = {}
        """What the engine's page shows of its settings, by label; empty where nothing, or not read yet."""
        self.restarts = 0
        """How often its page looked like another process's: counters that began anew, other settings."""
        self.has_limit = False
        """False: nothing is known that would bound this endpoint, and admission asks no further."""
        self.sequences_limit: int | None = None
        """Requests that we may have here at once; set by admission, as the two below."""
        self.prefill_limit_tokens: int | None = None
        self.held_limit_tokens: int | None = None
        self.listener: Freed | None = None
        """Told when room may have come, while somebody waits for it."""

    def note(self, measured: MeasuredLoad) -> None:
        """Keep a reading."""
        self.measured = measured
        self._foreign.append(measured.foreign)
        self.foreign = min(self._foreign)

    def went_stale(self) -> None:
        """The engine says nothing any more."""
        self.foreign = 0
        self._foreign.extend([0] * (READINGS - 1))

    def fresh(self, now_mono_s: float) -> MeasuredLoad | None:
        """Return the engine's last numbers, unless they are too old to be believed."""
        measured = self.measured
        if measured is None or now_mono_s - measured.at_mono_s > self.fresh_for_s:
            return None
        return measured

    def age_s(self, now_mono_s: float) -> float | None:
        """Age of the engine's last numbers; None: there never were any."""
        return None if self.measured is None else now_mono_s - self.measured.at_mono_s

    def __repr__(self) -> str:
        return (
            f"EndpointLoad(prefill={self.prefill_tokens} tokens of {self.prefilling}, held={self.held_tokens} tokens, "
            f"limit={self.sequences_limit})"
        )


class Freed(Protocol):
    def __call__(self) -> None: ...


class Place(Protocol):
    """Where requests go: an endpoint, or its like in virtual time."""

    in_flight: int

    @property
    def load(self) -> EndpointLoad: ...


class Claim:
    """What one request holds of one endpoint, from the pick to the end of its attempt there.

    Made by whoever picks (admission, or forwarding for a further attempt), in the same turn, so that no parallel pick
    sees room that is gone.
    """

    __slots__ = ("input_tokens", "is_prefilling", "output_tokens", "place")

    def __init__(self, place: Place, input_tokens: int) -> None:
        self.place = place
        self.input_tokens = input_tokens
        self.output_tokens = 0
        self.is_prefilling = True
        place.in_flight += 1
        load = place.load
        load.prefilling += 1
        load.prefill_tokens += input_tokens

    def first_token(self) -> None:
        """The prompt is computed: its tokens are held now."""
        if not self.is_prefilling:
            return
        self.is_prefilling = False
        load = self.place.load
        load.prefilling -= 1
        load.prefill_tokens -= self.input_tokens
        load.held_tokens += self.input_tokens
        if load.listener is not None:
            load.listener()

    def grow(self, output_tokens: int) -> None:
        """It has so many output tokens by now. Called now and then, not for each."""
        if not self.is_prefilling:
            self.place.load.held_tokens += output_tokens - self.output_tokens
            self.output_tokens = output_tokens

    def free(self) -> None:
        """The attempt has ended, however. Called once."""
        place, load = self.place, self.place.load
        place.in_flight -= 1
        load.ended += 1
        if self.is_prefilling:
            load.prefilling -= 1
            load.prefill_tokens -= self.input_tokens
        else:
            load.held_tokens -= self.input_tokens + self.output_tokens
        if load.listener is not None:
            load.listener()
