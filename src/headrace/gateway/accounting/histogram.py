"""A histogram as plain numbers: one `observe` is a bisect and two additions, since it runs for every streamed event."""

from bisect import bisect_left


class Histogram:
    """Counts per bucket, and their sum. Units: as its metric's."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, count up to it) pairs, the last one `+Inf`, as Prometheus wants them."""
        pairs: list[tuple[str, float]] = []
        count = 0
        for bound, here in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += here
            pairs.append((bound, float(count)))
        return pairs
