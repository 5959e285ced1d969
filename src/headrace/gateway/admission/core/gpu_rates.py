"""GPU time of a request from the speed of its pool: prefill and decode apart, declared or learned while it serves.

A full engine works on many requests at once, so a request's share of its time is tokens over the whole engine's
throughput; the shares of all requests add up to the time that the engine was busy.
"""

FORGETTING = 0.98
"""Of what is known, at each look: fifty looks are remembered. Chosen."""
LEARNED_LOOKS = 5
"""Before that nothing is known. Chosen."""
RIDGE = 1e-6
"""Of the sums' size, added to them: where prefill and decode always come in the same proportion and cannot be told
apart, the time is shared in the proportion of the tokens' squares, and the sum is still right. Chosen."""


class PoolSpeed:
    """Seconds of one replica for one token of each kind. Units: tokens, seconds of one replica."""

    __slots__ = ("_declared", "_looks", "_seconds", "_sums", "decode_s", "devices", "prefill_s")

    def __init__(self) -> None:
        self._declared: tuple[float | None, float | None] = (None, None)
        self._seconds = (0.0, 0.0)
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Of prefill squared, prefill times decode, decode squared, prefill times busy, decode times busy."""
        self._looks = 0
        self.prefill_s: float | None = None
        self.decode_s: float | None = None
        self.devices = 1

    def declare(self, *, prefill_tokens_per_s: float | None, decode_tokens_per_s: float | None, devices: int) -> None:
        """Follow a plan: what is declared holds, what is not is learned and stays so."""
        self._declared = (
            1 / prefill_tokens_per_s if prefill_tokens_per_s else None,
            1 / decode_tokens_per_s if decode_tokens_per_s else None,
        )
        self.devices = devices
        self._publish()

    @property
    def is_declared(self) -> bool:
        """Nothing is to be learned."""
        return None not in self._declared

    @property
    def is_known(self) -> bool:
        return self.prefill_s is not None and self.decode_s is not None

    def gpu_s(self, *, input_tokens: int, cached_input_tokens: int, output_tokens: int) -> float | None:
        """GPU time of a request; None where the speed is not known. Tokens found in the cache take none."""
        prefill_s, decode_s = self.prefill_s, self.decode_s
        if prefill_s is None or decode_s is None:
            return None
        fresh = input_tokens - min(cached_input_tokens, input_tokens)
        return (fresh * prefill_s + output_tokens * decode_s) * self.devices

    def learn(self, *, prefill_tokens: int, decode_tokens: int, busy_s: float) -> None:
        """So many tokens came through while replicas were busy for `busy_s` in sum: least squares of relative errors,
        the past forgotten.
        """
        if prefill_tokens + decode_tokens <= 0 or busy_s <= 0.0:
            return
        x, y = prefill_tokens / busy_s, decode_tokens / busy_s
        xx, xy, yy, x1, y1 = (FORGETTING * one for one in self._sums)
        self._sums = xx, xy, yy, x1, y1 = xx + x * x, xy + x * y, yy + y * y, x1 + x, y1 + y
        self._seconds = _solve(xx, xy, yy, x1, y1)
        self._looks += 1
        self._publish()

    def _publish(self) -> None:
        learned = self._seconds if self._looks >= LEARNED_LOOKS else (None, None)
        declared = self._declared
        self.prefill_s = declared[0] if declared[0] is not None else learned[0]
        self.decode_s = declared[1] if declared[1] is not None else learned[1]


def _solve(xx: float, xy: float, yy: float, x1: float, y1: float) -> tuple[float, float]:
    """Seconds per token of each kind, none below 0."""
    ridge = RIDGE * (xx + yy)
    a, c = xx + ridge, yy + ridge
    determinant = a * c - xy * xy
    first, second = (c * x1 - xy * y1) / determinant, (a * y1 - xy * x1) / determinant
    if first < 0.0:
        return 0.0, y1 / c
    return (first, second) if second >= 0.0 else (x1 / a, 0.0)
