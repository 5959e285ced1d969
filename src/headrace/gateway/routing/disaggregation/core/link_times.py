"""How long moving KV takes between two engines, learned on line: `handshake + bytes / rate`, pair by pair.

A pair's first hand-over also connects the two (seconds with NIXL) and is not learned from: pairs are warmed up.
"""

from headrace.gateway.routing.core.learning import LineEstimate

FIRST_HANDSHAKE_S = 10.0
"""What a pair's first hand-over may take on top. Source: measured with two vLLM processes, up to 10 s."""
PRIOR_HANDSHAKE_S = 0.02
"""Chosen."""
PRIOR_BYTES_PER_S = 1e9
"""Chosen: what a 10 Gbit/s network carries. Few measured hand-overs replace it."""
SCALE_BYTES = 1e8
TRUSTED_POINTS = 8
"""Hand-overs of a pair's own before it is judged by them alone. Chosen."""


class LinkTimes:
    """All pairs of one model. Units: bytes, seconds. Concurrency: one owner."""

    def __init__(self) -> None:
        self._all = _line()
        self._pairs: dict[tuple[str, str], LineEstimate | None] = {}
        """None: connected, and nothing learned."""

    def is_warm(self, prefill: str, decode: str) -> bool:
        """Whether the two have handed over before."""
        return (prefill, decode) in self._pairs

    def forget(self, endpoint: str) -> None:
        """An endpoint has gone or started anew: its pairs are cold again."""
        for pair in [pair for pair in self._pairs if endpoint in pair]:
            del self._pairs[pair]

    def observe(self, prefill: str, decode: str, *, size_bytes: float, transfer_s: float) -> None:
        """Learn one hand-over."""
        pair = (prefill, decode)
        if pair not in self._pairs:
            self._pairs[pair] = None
            return
        line = self._pairs[pair] or _line()
        self._pairs[pair] = line
        line.observe(size_bytes, transfer_s)
        self._all.observe(size_bytes, transfer_s)

    def predict(self, prefill: str, decode: str, size_bytes: float) -> float:
        """Return the seconds that a hand-over should take; the pool's line stands in for a little known pair's."""
        line = self._pairs.get((prefill, decode))
        known = line if line is not None and line.points >= TRUSTED_POINTS else self._all
        cold_s = 0.0 if self.is_warm(prefill, decode) else FIRST_HANDSHAKE_S
        return known.predict(size_bytes) + cold_s

    def rate_bytes_per_s(self, prefill: str, decode: str) -> float | None:
        """Return a pair's learned rate; None: too little is known."""
        line = self._pairs.get((prefill, decode))
        return 1 / line.slope if line is not None and line.points >= TRUSTED_POINTS and line.slope > 0 else None


def _line() -> LineEstimate:
    return LineEstimate(fixed=PRIOR_HANDSHAKE_S, slope=1 / PRIOR_BYTES_PER_S, scale=SCALE_BYTES)
