"""The retry budget: bounds repeated attempts to a share of recent requests, so that a dying pool is not hammered.

Each request that was in flight at an endpoint which died brings a reserve, so that one death can be absorbed whole.
"""

WINDOW_S = 10.0
"""Requests of this and the window before are "recent". Source: as Finagle's and Envoy's default retry budgets."""


class RetryBudget:
    """Units: attempts, monotonic seconds. Concurrency: one owner."""

    __slots__ = (
        "_before",
        "_minimum",
        "_ratio",
        "_requests",
        "_reserve",
        "_retries",
        "_retries_before",
        "_window_mono_s",
    )

    def __init__(self, *, ratio: float, minimum: int, now_mono_s: float) -> None:
        self._ratio = ratio
        self._minimum = minimum
        self._window_mono_s = now_mono_s
        self._requests = self._before = 0
        self._retries = self._retries_before = 0
        self._reserve = 0

    def adopt(self, *, ratio: float, minimum: int) -> None:
        """Adopt other limits; what was counted stays counted."""
        self._ratio = ratio
        self._minimum = minimum

    def count_request(self) -> None:
        """A request got its first attempt."""
        self._requests += 1

    def add_reserve(self, attempts: int) -> None:
        """An endpoint died under so many requests: each may be tried once more."""
        self._reserve += attempts

    def try_retry(self, now_mono_s: float) -> bool:
        """Take one retry from the budget; False where it is used up."""
        self.turn(now_mono_s)
        if self._reserve > 0:  # first: what a death takes is not taken from the others
            self._reserve -= 1
            return True
        allowed = self._minimum + self._ratio * (self._requests + self._before)
        if self._retries + self._retries_before < allowed:
            self._retries += 1
            return True
        return False

    def turn(self, now_mono_s: float) -> None:
        """Let what is not recent any more go. To be called more often than once a window: counting has no clock."""
        windows = int((now_mono_s - self._window_mono_s) / WINDOW_S)
        if windows <= 0:
            return
        self._window_mono_s += windows * WINDOW_S
        self._before = self._requests if windows == 1 else 0
        self._retries_before = self._retries if windows == 1 else 0
        self._requests = self._retries = self._reserve = 0
