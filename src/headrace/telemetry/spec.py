"""What is said of a metric. The catalogue is made of these."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric. A counter's exposed name ends in `_total`, as Prometheus asks."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    unit: str
    description: str
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, without +Inf."""
    from_zero: tuple[str, ...] = ()
    """Values of the last label that a counter shows as 0 before the first event: no rate shows the event with which a
    series begins, and the first of a trouble is the one that somebody looks for.
    """

    def with_zeros(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return counts by the last label, with those that have not happened yet."""
        return {**dict.fromkeys(self.from_zero, 0), **counts}
