"""A token bucket: `per_min` tokens a minute, at most one minute's worth saved up."""


class TokenBucket:
    """Starts full. A limit of 0 never grants.

    Units: tokens, monotonic seconds.
    """

    __slots__ = ("_at_mono_s", "_per_min", "_tokens")

    def __init__(self, per_min: int, now_mono_s: float) -> None:
        self._per_min = per_min
        self._tokens = float(per_min)
        self._at_mono_s = now_mono_s

    def try_take(self, now_mono_s: float) -> float | None:
        """Take one token and return None, or return the seconds until one will be there (inf: never)."""
        tokens = self._refill(now_mono_s)
        if tokens >= 1.0:
            self._tokens = tokens - 1.0
            return None
        return (1.0 - tokens) * 60.0 / self._per_min if self._per_min else float("inf")

    def give_back(self) -> None:
        """Return a token that was taken for nothing."""
        self._tokens = min(self._tokens + 1.0, float(self._per_min))

    def change_limit(self, per_min: int, now_mono_s: float) -> None:
        """Adopt another limit; what was used stays used, so that a reload is no fresh start."""
        self._refill(now_mono_s)
        used = self._per_min - self._tokens
        self._per_min = per_min
        self._tokens = max(0.0, per_min - used)

    def _refill(self, now_mono_s: float) -> float:
        per_min = self._per_min
        tokens = self._tokens + (now_mono_s - self._at_mono_s) * per_min / 60.0
        if tokens > per_min:
            tokens = float(per_min)
        self._tokens = tokens
        self._at_mono_s = now_mono_s
        return tokens

    def __repr__(self) -> str:
        return f"TokenBucket({self._tokens:.2f} of {self._per_min}/min)"
