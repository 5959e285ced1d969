"""What the suite measures on the way (start, abort and drain times, tokens per second), printed at its end."""

from collections import defaultdict


class Figures:
    """Named lists of numbers; the unit is in the name."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        self._values[name].append(value)

    def __str__(self) -> str:
        return "; ".join(
            f"{name} {', '.join(f'{value:.3g}' for value in found)}" for name, found in self._values.items()
        )


FIGURES = Figures()
