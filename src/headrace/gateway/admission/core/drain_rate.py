"""How fast a queue drains, as measured: what `Retry-After` and expected waits are computed from."""

from math import ceil, exp

WINDOW_S = 10.0
"""Older starts count less and less: by 1/e after so long. Chosen: several answers of a slow engine."""
SHORTEST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
"""Bounds of `Retry-After`: nobody is told to come back at once, or to give up. Chosen."""


class DrainRate:
    """Starts from the queue per second, decaying. Units: requests, monotonic seconds."""

    __slots__ = ("_at_mono_s", "_begun_mono_s", "_weight")

    def __init__(self) -> None:
        self._weight = 0.0
        self._at_mono_s = 0.0
        self._begun_mono_s: float | None = None

    def note(self, now_mono_s: float) -> None:
        """A request that had waited has started."""
        if self._begun_mono_s is None:
            self._begun_mono_s = self._at_mono_s = now_mono_s
        self._weight = self._decayed(now_mono_s) + 1.0
        self._at_mono_s = now_mono_s

    def per_s(self, now_mono_s: float) -> float | None:
        """Return the rate; None while too little was seen to say."""
        if self._begun_mono_s is None or now_mono_s <= self._begun_mono_s:
            return None
        watched = 1.0 - exp(-(now_mono_s - self._begun_mono_s) / WINDOW_S)
        return self._decayed(now_mono_s) / (WINDOW_S * watched)

    def wait_s(self, ahead: float, now_mono_s: float) -> float | None:
        """Return how long it takes until `ahead` requests and one more have started; None: not known."""
        rate = self.per_s(now_mono_s)
        return None if not rate else (ahead + 1.0) / rate

    def retry_after_s(self, ahead: float, now_mono_s: float) -> float:
        """Whole seconds after which it makes sense to come back."""
        wait_s = self.wait_s(ahead, now_mono_s)
        if wait_s is None:
            return SHORTEST_RETRY_S
        return float(ceil(min(max(wait_s, SHORTEST_RETRY_S), LONGEST_RETRY_S)))

    def _decayed(self, now_mono_s: float) -> float:
        return self._weight * exp(-(now_mono_s - self._at_mono_s) / WINDOW_S)
