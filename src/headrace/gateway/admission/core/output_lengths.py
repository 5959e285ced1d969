"""How long a model's answers are where the caller sets no limit: the 95th percentile, learned as they end."""

START_TOKENS = 1024
"""Taken for the length as long as fewer than LEARNED answers are known. Chosen: longer than most chat answers."""
LEARNED = 20
"""So many answers make a percentile. Chosen: the smallest number of which one lies above the 95th."""
HALF_LIFE = 500
"""After so many answers, those before count half. Chosen: a changed prompt is learned within minutes of real use."""
QUANTILE = 0.95
GROWTH = 1.25
"""Between two bounds of the histogram: a percentile is at most so far above the truth."""
_BOUNDS = tuple(dict.fromkeys(round(GROWTH**power) for power in range(64)))
"""1 to about 1.3 million tokens."""


class OutputLengths:
    """A histogram with forgetting. `expected_tokens` is a field, so that reading costs nothing."""

    __slots__ = ("_answers", "_counts", "_weight", "expected_tokens")

    def __init__(self) -> None:
        self._counts = [0.0] * len(_BOUNDS)
        self._answers = 0
        self._weight = 1.0
        """Of the next answer: grows instead of all the others shrinking."""
        self.expected_tokens = START_TOKENS

    def learn(self, output_tokens: int) -> None:
        """An answer without a limit of its own has ended by itself."""
        index = _index_of(output_tokens)
        self._counts[index] += self._weight
        self._answers += 1
        self._weight *= 2 ** (1 / HALF_LIFE)
        if self._weight > 1e12:
            self._counts = [count / self._weight for count in self._counts]
            self._weight = 1.0
        if self._answers >= LEARNED:
            self.expected_tokens = self._percentile()

    def _percentile(self) -> int:
        left = sum(self._counts) * (1 - QUANTILE)
        for index in range(len(_BOUNDS) - 1, 0, -1):
            left -= self._counts[index]
            if left < 0:
                return _BOUNDS[index]
        return _BOUNDS[0]


def _index_of(tokens: int) -> int:
    """Of the first bound that is not below `tokens`."""
    low, high = 0, len(_BOUNDS) - 1
    while low < high:
        middle = (low + high) // 2
        if _BOUNDS[middle] < tokens:
            low = middle + 1
        else:
            high = middle
    return low
