"""When an issuer's keys are asked for again: regularly, sooner after a failure, and at once for a key nobody knows yet.

A stranger can invent as many key ids as it likes, so looks caused by unknown ids are bounded.
"""

from dataclasses import dataclass

UNKNOWN_KEY_INTERVAL_S = 10.0
"""Two looks caused by an unknown key id are at least so far apart. Chosen: a rotation is seen at once, a flood of
made-up ids costs the issuer one request in ten seconds."""

FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
"""Pause after a failed look; doubles."""


@dataclass(slots=True, kw_only=True)
class KeyRefresh:
    """The times of one issuer's looks. Units: monotonic seconds."""

    refresh_s: float
    keep_s: float
    fetched_mono_s: float | None = None
    """When keys last came."""
    next_mono_s: float = 0.0
    """When to look again."""
    failures: int = 0
    """In a row."""
    _asked_mono_s: float | None = None

    def note_fetched(self, now_mono_s: float, *, age_s: float = 0.0) -> None:
        """Keys have come; `age_s`: they were fetched so long ago, by an earlier process."""
        self.fetched_mono_s = now_mono_s - age_s
        self.next_mono_s = now_mono_s if age_s else now_mono_s + self.refresh_s
        self.failures = 0

    def note_failed(self, now_mono_s: float) -> None:
        """No keys came."""
        self.next_mono_s = now_mono_s + min(LAST_RETRY_S, self.refresh_s, FIRST_RETRY_S * 2.0 ** min(self.failures, 10))
        self.failures += 1

    def try_hurry(self, now_mono_s: float) -> bool:
        """A token names a key that is not known: look now, unless that was done a moment ago."""
        if self._asked_mono_s is not None and now_mono_s - self._asked_mono_s < UNKNOWN_KEY_INTERVAL_S:
            return False
        self._asked_mono_s = now_mono_s
        self.next_mono_s = now_mono_s
        return True

    def is_usable(self, now_mono_s: float) -> bool:
        """Whether what was fetched still counts."""
        return self.fetched_mono_s is not None and now_mono_s - self.fetched_mono_s < self.keep_s

    @property
    def is_looking(self) -> bool:
        """A look that an unknown key caused has neither brought keys nor failed yet."""
        return self._asked_mono_s is not None and self.next_mono_s == self._asked_mono_s
