"""Non-negative least squares, small and without a library: a fit has a dozen unknowns and some hundred equations."""

from collections.abc import Sequence
from statistics import median

RIDGE = 1e-10
PULL_LIMIT = 1e-9
SMALLEST_VALUE = 1e-12
"""Of columns of unit length: numerical noise."""

REWEIGHTINGS = 8
HUBER_SCALES = 1.345 * 1.4826
"""Errors beyond 1.345 standard deviations count less; the deviation is 1.4826 times the median absolute error."""
LEAST_SCALE = 0.002
"""Below this (of a right side that is about 1) all errors are usual."""

Row = tuple[tuple[float, ...], float]
"""One equation: coefficients of the unknowns, and the right side."""


def solve_non_negative(rows: Sequence[Row]) -> list[float]:
    """Return the non-negative vector with the least sum of squared errors.

    Source: Lawson and Hanson 1974, chapter 23, on the normal equations with columns of unit length.
    """
    size = len(rows[0][0])
    norms = [
        _product([left[column] for left, _right in rows], [left[column] for left, _right in rows]) ** 0.5
        for column in range(size)
    ]
    columns = [[left[column] / (norms[column] or 1.0) for left, _right in rows] for column in range(size)]
    rights = [right for _left, right in rows]
    gram = [[_product(one, other) for other in columns] for one in columns]
    aims = [_product(column, rights) for column in columns]
    values = _lawson_hanson(gram, aims)
    return [value / (norm or 1.0) for value, norm in zip(values, norms, strict=True)]


def _lawson_hanson(gram: list[list[float]], aims: list[float]) -> list[float]:
    size = len(aims)
    values: list[float] = [0.0] * size
    free: list[int] = []
    for _ in range(3 * size):
        pull = [aims[index] - _product(gram[index], values) for index in range(size)]
        candidates = [index for index in range(size) if index not in free and pull[index] > PULL_LIMIT]
        if not candidates:
            break
        free.append(max(candidates, key=pull.__getitem__))
        while free:
            solved = _solve([[gram[row][column] for column in free] for row in free], [aims[row] for row in free])
            below = [place for place, value in enumerate(solved) if value <= 0.0]
            if not below:
                values = [0.0] * size
                for place, index in enumerate(free):
                    values[index] = solved[place]
                break
            way = min(values[free[place]] / (values[free[place]] - solved[place]) for place in below)
            for place, index in enumerate(free):
                values[index] += way * (solved[place] - values[index])
            free = [index for index in free if values[index] > SMALLEST_VALUE]
            values = [value if index in free else 0.0 for index, value in enumerate(values)]
    return values


def _solve(matrix: list[list[float]], aims: list[float]) -> list[float]:
    """Solve a small symmetric system by elimination; a little is added to the diagonal, so that there is a solution."""
    size = len(aims)
    lines = [[*row, aim] for row, aim in zip(matrix, aims, strict=True)]
    for index in range(size):
        lines[index][index] += RIDGE
    for pivot in range(size):
        best = max(range(pivot, size), key=lambda row: abs(lines[row][pivot]))
        lines[pivot], lines[best] = lines[best], lines[pivot]
        for row in range(pivot + 1, size):
            factor = lines[row][pivot] / lines[pivot][pivot]
            if factor:
                lines[row] = [a - factor * b for a, b in zip(lines[row], lines[pivot], strict=True)]
    solution = [0.0] * size
    for row in reversed(range(size)):
        known = sum(lines[row][column] * solution[column] for column in range(row + 1, size))
        solution[row] = (lines[row][size] - known) / lines[row][row]
    return solution


def solve_robustly(rows: Sequence[Row]) -> list[float]:
    """Return the same with far outliers counting less: a disturbed measurement is no more than that.

    Source: Huber 1964, by reweighting; the scale is the median absolute error.
    """
    values = solve_non_negative(rows)
    for _ in range(REWEIGHTINGS):
        errors = [abs(_product(left, values) - right) for left, right in rows]
        usual = max(HUBER_SCALES * median(errors), LEAST_SCALE)
        values = solve_non_negative(
            [
                (tuple(value * weight for value in left), right * weight)
                for (left, right), error in zip(rows, errors, strict=True)
                for weight in (min(1.0, usual / error) ** 0.5 if error else 1.0,)
            ]
        )
    return values


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
