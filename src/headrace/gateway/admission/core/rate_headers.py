"""`x-ratelimit-*` as OpenAI's clients read them: of the tightest level, for requests and tokens. Pure.

`entry/own_answers.py` names them to browsers.
"""

import sys
from collections.abc import Sequence

from headrace.gateway.admission.core.meter import Meter


class RateHeaders:
    """Header lines of one caller's answers; made once for its meters, with their limits written already."""

    __slots__ = ("_kinds",)

    def __init__(self, requests: Sequence[Meter], tokens: Sequence[Meter]) -> None:
        kinds = ((b"requests", requests), (b"tokens", tokens))
        self._kinds = tuple(
            tuple((meter, _template(name, meter.amount)) for meter in meters) for name, meters in kinds if meters
        )

    @property
    def is_empty(self) -> bool:
        """No window is declared."""
        return not self._kinds

    def lines(self, now_mono_s: float) -> bytes:
        """Limit, remaining, and time until all of it is there again, of the meter with the least left; empty where no
        window is declared.
        """
        lines = b""
        for meters in self._kinds:
            (tightest, template), least = meters[0], sys.maxsize
            for meter, its_template in meters:
                left = meter.amount - meter.used(now_mono_s)
                if left < least:
                    tightest, template, least = meter, its_template, left
            lines += template % (least if least > 0 else 0, int(tightest.reset_s(now_mono_s) * 1000.0))
        return lines


def _template(name: bytes, limit: int) -> bytes:
    return (
        b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %%d\r\nx-ratelimit-reset-%b: %%dms\r\n"
        % (name, limit, name, name)
    )  # fmt: skip
