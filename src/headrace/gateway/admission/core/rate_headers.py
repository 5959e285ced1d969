"""`x-ratelimit-*` as OpenAI's clients read them: of the tightest level, for requests and tokens. Pure."""

from collections.abc import Sequence

from headrace.gateway.admission.core.meter import Meter
from headrace.gateway.admission.core.purse import Purse

NAMES = tuple(
    f"x-ratelimit-{figure}-{kind}"
    for kind in ("requests", "tokens", "input-tokens", "output-tokens")
    for figure in ("limit", "remaining", "reset")
)
"""All of them, for CORS. `tokens` is the tighter of input and output; the other two are headrace's own."""


def rate_lines(purse: Purse, now_mono_s: float) -> bytes:
    """Header lines of an answer; empty where no window of requests or tokens is declared."""
    lines = b""
    if purse.request_meters:
        lines = _lines(b"requests", *_tightest(purse.request_meters, now_mono_s))
    inputs, outputs = purse.input_meters, purse.output_meters
    if inputs or outputs:
        lines += _lines(b"tokens", *_tightest(inputs + outputs, now_mono_s))
        if inputs:
            lines += _lines(b"input-tokens", *_tightest(inputs, now_mono_s))
        if outputs:
            lines += _lines(b"output-tokens", *_tightest(outputs, now_mono_s))
    return lines


def _tightest(meters: Sequence[Meter], now_mono_s: float) -> tuple[int, int, float]:
    """Limit, remaining, and seconds to full, of the meter with the least left."""
    tightest = meters[0]
    least = tightest.amount - tightest.used(now_mono_s)
    for meter in meters[1:]:
        left = meter.amount - meter.used(now_mono_s)
        if left < least:
            tightest, least = meter, left
    return tightest.amount, max(least, 0), tightest.reset_s(now_mono_s)


def _lines(kind: bytes, amount: int, remaining: int, reset_s: float) -> bytes:
    return b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %d\r\nx-ratelimit-reset-%b: %dms\r\n" % (
        kind,
        amount,
        kind,
        remaining,
        kind,
        reset_s * 1000 if reset_s < 1e9 else 0,
    )
