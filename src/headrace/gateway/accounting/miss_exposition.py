"""Metrics of explained cache misses as families for Prometheus. Counterpart: `exposition.py`.

The label is a closed set of causes: nothing a caller can invent (PAINS 14).
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.telemetry import catalogue
from headrace.telemetry.catalogue import MetricSpec


class MissCollector(Collector):
    """Makes metric families of misses and tokens by cause."""

    def __init__(self, sample: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        misses, tokens = _counter(catalogue.CACHE_MISSES), _counter(catalogue.CACHE_MISS_TOKENS)
        for cause, (requests, lost_tokens) in self._sample().items():
            misses.add_metric([cause], requests)
            tokens.add_metric([cause], lost_tokens)
        yield from (misses, tokens)


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)
