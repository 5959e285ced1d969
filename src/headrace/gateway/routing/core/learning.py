"""What is learned of an endpoint while it serves: a straight line through noisy points, newer ones counting more."""

FORGETTING = 0.997
"""Weight of a point that is one older: about the last 300 count. Chosen by rehearsal: with 70 the slope of a busy pool
was lost in noise now and then, and with it a third of the prefix hits."""
CLIP = 3.0
"""A point further from the line than so many usual distances counts as if it were there: a hiccup moves little."""
RUN_OF_OUTLIERS = 3
"""So many outliers in a row, all on one side, are no hiccup but a change, and count in full. Chosen."""
LARGEST_VARIANCE = 100.0
"""How unsure the line may become when all points are alike; without a bound the next odd point would bend it."""


class LineEstimate:
    """`y = fixed + slope * x`, both at least a floor, by recursive least squares with forgetting and clipped residuals.

    Units: the caller's. `scale` brings x to about 1.
    """

    __slots__ = ("_p00", "_p01", "_p11", "_run", "_scale", "_slope", "_spread", "_weight", "fixed", "points", "slope")

    def __init__(self, *, fixed: float, slope: float, scale: float) -> None:
        self.fixed: float = fixed
        self.slope: float = slope
        self.points: int = 0
        self._scale = scale
        self._slope: float = slope * scale
        self._p00: float = 1.0
        self._p01: float = 0.0
        self._p11: float = 1.0
        self._run = 0
        """Outliers since the last point that was none; below 0: below the line."""
        self._spread: float = 0.0
        self._weight: float = 0.0

    def predict(self, x: float) -> float:
        return self.fixed + self.slope * x

    def observe(self, x: float, y: float) -> None:
        """Learn one point."""
        self.points += 1
        scaled = x / self._scale
        error = y - self.fixed - self._slope * scaled
        error = self._clipped(error)
        g0 = self._p00 + self._p01 * scaled
        g1 = self._p01 + self._p11 * scaled
        denominator = FORGETTING + g0 + g1 * scaled
        k0, k1 = g0 / denominator, g1 / denominator
        self.fixed = max(0.0, self.fixed + k0 * error)
        self._slope = max(1e-12, self._slope + k1 * error)
        self.slope = self._slope / self._scale
        p00 = (self._p00 - k0 * g0) / FORGETTING
        p01 = (self._p01 - k0 * g1) / FORGETTING
        p11 = (self._p11 - k1 * g1) / FORGETTING
        if p00 > LARGEST_VARIANCE or p11 > LARGEST_VARIANCE:
            return
        self._p00, self._p01, self._p11 = p00, p01, p11

    def _clipped(self, error: float) -> float:
        """Bound a residual by what residuals usually are; the first ones are taken as they come."""
        size, bound = abs(error), CLIP * self._spread
        if self.points > 8 and size > bound:
            step = 1 if error > 0 else -1
            self._run = self._run + step if self._run * step > 0 else step
            if abs(self._run) <= RUN_OF_OUTLIERS:
                size = bound
        else:
            self._run = 0
        self._weight = self._weight * FORGETTING + 1.0
        self._spread += (size - self._spread) / self._weight
        return size if error >= 0 else -size

    def __repr__(self) -> str:
        return f"LineEstimate({self.fixed:.4g} + {self.slope:.4g} x, {self.points} points)"
