"""When a first token is late, learned from those that came: the 95th percentile of the last ones of a pool."""

from headrace.domain.quantiles import nearest_rank

SAMPLES = 256
"""First tokens that are remembered. Chosen: some seconds of a busy pool."""
FEWEST = 50
"""Before so many have come nothing is called late. Chosen: the 95th percentile of fewer is a guess."""
LOOK_AFTER = 16
"""First tokens between two looks at the percentile, since sorting costs. Chosen."""
SHARE = 0.95


class Lateness:
    """One pool. Units: seconds from an attempt's sending to its first token. Concurrency: one owner."""

    __slots__ = ("_late_after_s", "_least_s", "_next", "_samples", "_since_look")

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._samples: list[float] = []
        self._next = self._since_look = 0
        self._late_after_s: float | None = None

    def adopt(self, least_s: float) -> None:
        """Follow a new plan; what was learned stays."""
        self._least_s = least_s

    @property
    def late_after_s(self) -> float | None:
        """A first token that has not come by then is late; None: not known yet."""
        return None if self._late_after_s is None else max(self._late_after_s, self._least_s)

    def add(self, first_token_s: float) -> None:
        """A first token came after so long."""
        if len(self._samples) < SAMPLES:
            self._samples.append(first_token_s)
        else:
            self._samples[self._next] = first_token_s
            self._next = (self._next + 1) % SAMPLES
        self._since_look += 1
        if len(self._samples) >= FEWEST and (self._late_after_s is None or self._since_look >= LOOK_AFTER):
            self._since_look = 0
            self._late_after_s = nearest_rank(sorted(self._samples), SHARE)
