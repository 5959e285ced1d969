"""How sharing limits with other processes stands, as Prometheus metrics; read when scraped."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.telemetry import catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSample:
    """Counts since the worker began, and the present state."""

    is_lost: bool
    members: int
    exchanges: int
    failures: int
    losses: int


class SharingCollector(Collector):
    """Makes metric families of a sample; none where nothing is shared."""

    def __init__(self, sample: Callable[[], SharingSample | None]) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        sample = self._sample()
        if sample is None:
            return
        gauges = ((catalogue.SHARING_LOST, float(sample.is_lost)), (catalogue.SHARING_MEMBERS, float(sample.members)))
        for spec, value in gauges:
            yield GaugeMetricFamily(spec.name, spec.description, value=value)
        counters = (
            (catalogue.SHARING_EXCHANGES, sample.exchanges),
            (catalogue.SHARING_FAILURES, sample.failures),
            (catalogue.SHARING_LOSSES, sample.losses),
        )
        for spec, count in counters:
            yield CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, value=count)
