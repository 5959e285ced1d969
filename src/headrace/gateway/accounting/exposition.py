"""The worker's counters as Prometheus text, by prometheus-client; read when scraped, never before."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.domain.endpoint import EndpointState
from headrace.gateway.accounting.counters import Counters, ModelCounters
from headrace.gateway.accounting.histogram import Histogram
from headrace.telemetry import catalogue
from headrace.telemetry.catalogue import MetricSpec
from headrace.telemetry.process_metrics import PROCESS_NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSample:
    """One endpoint at the moment of a scrape."""

    endpoint: str
    state: EndpointState
    in_flight: int
    requests: int
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSample:
    """What the counters do not hold themselves, at the moment of a scrape."""

    in_flight: int
    connections: int
    journal_dropped: int
    journal_pending: int
    log_dropped: int
    endpoints: tuple[EndpointSample, ...]


class GatewayCollector(Collector):
    """Makes metric families of the counters."""

    def __init__(self, counters: Counters, sample: Callable[[], WorkerSample]) -> None:
        self._counters = counters
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        yield from self._models()
        yield from self._worker(self._sample())

    def _models(self) -> Iterator[Metric]:
        models = self._counters.models
        requests = _counter(catalogue.REQUESTS)
        tokens = _counter(catalogue.TOKENS)
        retries = _counter(catalogue.RETRIES)
        failovers = _counter(catalogue.FAILOVERS)
        resumes, unresumed = _counter(catalogue.RESUMES), _counter(catalogue.UNRESUMED)
        hedges = _counter(catalogue.HEDGES)
        for name, counted in models.items():
            is_declared = counted is not self._counters.unknown
            ended = dict.fromkeys(catalogue.ENDS_FROM_ZERO if is_declared else (), 0) | counted.ended
            for (outcome, code), count in ended.items():
                requests.add_metric([name, outcome, code], count)
            tokens.add_metric([name, "input"], counted.input_tokens)
            tokens.add_metric([name, "cached_input"], counted.cached_input_tokens)
            tokens.add_metric([name, "output"], counted.output_tokens)
            retries.add_metric([name], counted.retries)
            for result, count in counted.hedges.items():
                hedges.add_metric([name, result], count)
            for spec, family, counts in (
                (catalogue.FAILOVERS, failovers, counted.failovers), (catalogue.RESUMES, resumes, counted.resumes),
                (catalogue.UNRESUMED, unresumed, counted.unresumed),
            ):  # fmt: skip
                for label, count in (spec.with_zeros(counts) if is_declared else counts).items():
                    family.add_metric([name, label], count)
        yield from (requests, tokens, retries, failovers, resumes, unresumed, hedges)
        yield _histograms(catalogue.TTFT, models, lambda counted: counted.ttft)
        yield _histograms(catalogue.TPOT, models, lambda counted: counted.tpot)
        yield _histograms(catalogue.ITL, models, lambda counted: counted.itl)
        yield _histograms(catalogue.E2E, models, lambda counted: counted.e2e)
        yield _histograms(catalogue.QUEUE, models, lambda counted: counted.queue)
        yield _histograms(catalogue.RESUME_GAP, models, lambda counted: counted.resume_gap)

    def _worker(self, sample: WorkerSample) -> Iterator[Metric]:
        yield _single(_gauge(catalogue.IN_FLIGHT), sample.in_flight)
        yield _single(_gauge(catalogue.CONNECTIONS), sample.connections)
        yield _single(_counter(catalogue.RETRY_BUDGET_REFUSALS), self._counters.retry_budget_refusals)
        yield _single(_counter(catalogue.JOURNAL_DROPPED), sample.journal_dropped)
        yield _single(_gauge(catalogue.JOURNAL_PENDING), sample.journal_pending)
        yield _single(_counter(catalogue.LOG_DROPPED), sample.log_dropped)
        cancels = _counter(catalogue.CANCELS)
        states = _gauge(catalogue.ENDPOINT_STATE)
        in_flight = _gauge(catalogue.ENDPOINT_IN_FLIGHT)
        requests = _counter(catalogue.ENDPOINT_REQUESTS)
        failures = _counter(catalogue.ENDPOINT_FAILURES)
        for endpoint in sample.endpoints:
            cancels.add_metric([endpoint.endpoint], self._counters.cancels.get(endpoint.endpoint, 0))
            for state in EndpointState:
                states.add_metric([endpoint.endpoint, state.value], float(state is endpoint.state))
            in_flight.add_metric([endpoint.endpoint], endpoint.in_flight)
            requests.add_metric([endpoint.endpoint], endpoint.requests)
            failures.add_metric([endpoint.endpoint], endpoint.failures)
        yield from (cancels, states, in_flight, requests, failures)


class Exposition:
    """The text of one worker's metrics."""

    def __init__(self, counters: Counters, sample: Callable[[], WorkerSample], *more: Collector) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(GatewayCollector(counters, sample))
        for collector in more:
            self._registry.register(collector)
        ProcessCollector(namespace=PROCESS_NAMESPACE, registry=self._registry)

    def text(self) -> str:
        """Prometheus text format 0.0.4."""
        return generate_latest(self._registry).decode("utf-8")


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)


def _gauge(spec: MetricSpec) -> GaugeMetricFamily:
    return GaugeMetricFamily(spec.name, spec.description, labels=spec.labels)


def _single(family: CounterMetricFamily | GaugeMetricFamily, value: float) -> Metric:
    family.add_metric([], value)
    return family


def _histograms(
    spec: MetricSpec, models: dict[str, ModelCounters], pick: Callable[[ModelCounters], Histogram]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(spec.name, spec.description, labels=spec.labels)
    for name, counted in models.items():
        histogram = pick(counted)
        family.add_metric([name], histogram.cumulative(), sum_value=histogram.total)
    return family
