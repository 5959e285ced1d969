"""What is said of a metric. The catalogue is made of these."""

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
