"""`x-ratelimit-*` as OpenAI's clients read them: of the tightest level, for requests and tokens. Pure.

`entry/own_answers.py` names them to browsers.
"""

from collections.abc import Sequence

from headrace.gateway.admission.core.meter import Meter


class RateHeaders:
    """Header lines of one caller's answers; made once for its meters."""

    __slots__ = ("_requests", "_tokens")

    def __init__(self, requests: Sequence[Meter], tokens: Sequence[Meter]) -> None:
        self._requests = tuple(requests)
        self._tokens = tuple(tokens)

    @property
    def is_empty(self) -> bool:
        """No window is declared."""
        return not self._requests and not self._tokens

    def lines(self, now_mono_s: float) -> bytes:
        """Limit, remaining, and time until all of it is there again; empty where no window is declared."""
        lines = b""
        if self._requests:
            lines = (
                b"x-ratelimit-limit-requests: %d\r\nx-ratelimit-remaining-requests: %d\r\n"
                b"x-ratelimit-reset-requests: %dms\r\n" % _tightest(self._requests, now_mono_s)
            )
        if self._tokens:
            lines += (
                b"x-ratelimit-limit-tokens: %d\r\nx-ratelimit-remaining-tokens: %d\r\n"
                b"x-ratelimit-reset-tokens: %dms\r\n" % _tightest(self._tokens, now_mono_s)
            )
        return lines


def _tightest(meters: tuple[Meter, ...], now_mono_s: float) -> tuple[int, int, float]:
    """Limit, remaining, and milliseconds to full, of the meter with the least left."""
    tightest = meters[0]
    least = tightest.amount - tightest.used(now_mono_s)
    if len(meters) > 1:
        for meter in meters[1:]:
            left = meter.amount - meter.used(now_mono_s)
            if left < least:
                tightest, least = meter, left
    return tightest.amount, least if least > 0 else 0, tightest.reset_s(now_mono_s) * 1000.0
