"""GPU time of a request from the speed of its pool: prefill and decode apart, declared or learned while it serves.

A full engine works on many requests at once, so a request's share of its time is tokens over the whole engine's
throughput; the shares of all requests add up to the time that the engine was busy.
"""

FORGETTING = 0.98
"""Of what is known, at each look: fifty looks are remembered. Chosen."""
LEARNED_LOOKS = 5
"""Before that nothing is known. Chosen."""
DOUBT = 1e-6
"""Squared seconds per token of the first guess (0): wider than any engine. Prefill and decode are told apart as soon as
their proportions differ between looks; until then the time is shared in proportion to the squares of the tokens."""


class PoolSpeed:
    """Seconds of one replica for one token of each kind. Units: tokens, seconds of one replica."""

    __slots__ = ("_covariance", "_declared", "_looks", "_seconds", "decode_s", "devices", "prefill_s")

    def __init__(self) -> None:
        self._declared: tuple[float | None, float | None] = (None, None)
        self._seconds = (0.0, 0.0)
        self._covariance = (DOUBT, 0.0, DOUBT)
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
        """So many tokens came through while replicas were busy for `busy_s` in sum: recursive least squares."""
        x, y = float(prefill_tokens), float(decode_tokens)
        if x + y <= 0.0 or busy_s <= 0.0:
            return
        first, second = self._seconds
        a, b, c = self._covariance
        gain_x, gain_y = a * x + b * y, b * x + c * y
        noise = (0.1 * busy_s) ** 2  # a look is believed to a tenth of itself
        scale = FORGETTING * noise + x * gain_x + y * gain_y
        error = busy_s - first * x - second * y
        first, second = first + gain_x / scale * error, second + gain_y / scale * error
        self._covariance = (
            min((a - gain_x * gain_x / scale) / FORGETTING, DOUBT),
            (b - gain_x * gain_y / scale) / FORGETTING,
            min((c - gain_y * gain_y / scale) / FORGETTING, DOUBT),
        )
        self._seconds = (max(first, 0.0), max(second, 0.0))
        self._looks += 1
        self._publish()

    def _publish(self) -> None:
        learned = self._seconds if self._looks >= LEARNED_LOOKS else (None, None)
        declared = self._declared
        self.prefill_s = declared[0] if declared[0] is not None else learned[0]
        self.decode_s = declared[1] if declared[1] is not None else learned[1]
