"""Non-negative least squares, small and without a library: a fit has a dozen unknowns and some hundred equations."""

from collections.abc import Sequence

SWEEPS = 20_000
SETTLED_RATIO = 1e-12
"""The descent ends when no coefficient moves by more than this part of itself."""

Row = tuple[tuple[float, ...], float]
"""One equation: coefficients of the unknowns, and the right side."""


def solve_non_negative(rows: Sequence[Row]) -> list[float]:
    """Return the non-negative vector with the least sum of squared errors, by coordinate descent.

    Source: Franc, Hlavac, Navara 2005, sequential coordinate-wise algorithm for non-negative least squares.
    """
    size = len(rows[0][0])
    scale = [max((abs(left[column]) for left, _right in rows), default=0.0) or 1.0 for column in range(size)]
    columns = [[left[column] / scale[column] for left, _right in rows] for column in range(size)]
    rights = [right for _left, right in rows]
    gram = [[_product(one, other) for other in columns] for one in columns]
    slope = [-_product(column, rights) for column in columns]
    values = [0.0] * size
    for _ in range(SWEEPS):
        largest = 0.0
        for index in range(size):
            if gram[index][index] <= 0.0:
                continue
            updated = max(0.0, values[index] - slope[index] / gram[index][index])
            change = updated - values[index]
            if change:
                values[index] = updated
                slope = [before + change * column for before, column in zip(slope, gram[index], strict=True)]
                largest = max(largest, abs(change) / (abs(updated) + 1e-30))
        if largest < SETTLED_RATIO:
            break
    return [value / unit for value, unit in zip(values, scale, strict=True)]


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
