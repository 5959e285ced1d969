"""Metrics of queues and of endpoints' room as families for Prometheus. Counterpart: `exposition.py`.

Labels are declared models, classes, endpoints and closed sets of words: nothing a caller can invent (PAINS 14).
"""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.domain.queue_status import QueueStatus
from headrace.telemetry import catalogue
from headrace.telemetry.catalogue import MetricSpec


class QueueCollector(Collector):
    """Makes metric families of the queues' statuses."""

    def __init__(self, sample: Callable[[], Iterable[QueueStatus]]) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        waiting, oldest = _gauge(catalogue.QUEUE_WAITING), _gauge(catalogue.QUEUE_OLDEST)
        refused, degraded = _counter(catalogue.QUEUE_REFUSALS), _counter(catalogue.QUEUE_DEGRADED)
        withdrawals = _counter(catalogue.QUEUE_WITHDRAWALS)
        places, prefill = _gauge(catalogue.ENDPOINT_PLACES), _gauge(catalogue.ENDPOINT_PREFILL)
        held, age = _gauge(catalogue.ENDPOINT_HELD), _gauge(catalogue.ENDPOINT_LOAD_AGE)
        for status in self._sample():
            for name, count in status.by_class.items():
                waiting.add_metric([status.model, name], count)
                ages = [each.oldest_s for each in status.tenants if each.request_class == name]
                oldest.add_metric([status.model, name], max((each for each in ages if each is not None), default=0.0))
            for bound, count in catalogue.QUEUE_REFUSALS.with_zeros(status.refused).items():
                refused.add_metric([status.model, bound], count)
            for step, count in status.degraded.items():
                degraded.add_metric([status.model, step], count)
            withdrawals.add_metric([status.model], status.withdrawals)
            for endpoint in status.endpoints:
                if endpoint.places is not None:
                    places.add_metric([endpoint.endpoint], endpoint.places)
                prefill.add_metric([endpoint.endpoint], endpoint.prefill_tokens)
                held.add_metric([endpoint.endpoint], endpoint.held_tokens)
                if endpoint.measured_age_s is not None:
                    age.add_metric([endpoint.endpoint], endpoint.measured_age_s)
        yield from (waiting, oldest, refused, degraded, withdrawals, places, prefill, held, age)


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)


def _gauge(spec: MetricSpec) -> GaugeMetricFamily:
    return GaugeMetricFamily(spec.name, spec.description, labels=spec.labels)
