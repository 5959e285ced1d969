"""Watches how long replicas are busy and how many tokens come through meanwhile, for pools whose speed is not declared.

Feeds `core/gpu_rates.py`. Busy is looked at every sweep, not measured to the millisecond: over a look of many seconds
the error averages out.
"""

from collections.abc import Mapping

from headrace.gateway.admission.core.gpu_rates import PoolSpeed

LOOK_S = 10.0
"""Busy time of one look, over all replicas of a pool. Chosen: answers count at their end, and most are shorter."""


class Look:
    """What one pool did since its last look."""

    __slots__ = ("busy_s", "decode_tokens", "prefill_tokens")

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.prefill_tokens = self.decode_tokens = 0


class GpuClock:
    """Concurrency: event loop only."""

    def __init__(self) -> None:
        self._looks: dict[str, Look] = {}
        self._last_mono_s: float | None = None

    def count(self, pool: str, prefill_tokens: int, decode_tokens: int) -> None:
        """A request has ended: so many tokens were computed for it."""
        look = self._looks.get(pool)
        if look is not None:
            look.prefill_tokens += prefill_tokens
            look.decode_tokens += decode_tokens

    def tick(self, busy: Mapping[str, int], speeds: Mapping[str, PoolSpeed], now_mono_s: float) -> None:
        """`busy`: how many replicas of each pool have work now. A pool that has had enough of it is learned from."""
        last, self._last_mono_s = self._last_mono_s, now_mono_s
        for pool in self._looks.keys() - speeds.keys():
            del self._looks[pool]
        if last is None:
            return
        for pool, speed in speeds.items():
            if speed.is_declared:
                self._looks.pop(pool, None)
                continue
            look = self._looks.setdefault(pool, Look())
            look.busy_s += busy.get(pool, 0) * (now_mono_s - last)
            if look.busy_s >= LOOK_S and look.prefill_tokens + look.decode_tokens:
                speed.learn(prefill_tokens=look.prefill_tokens, decode_tokens=look.decode_tokens, busy_s=look.busy_s)
                self._looks[pool] = Look()
