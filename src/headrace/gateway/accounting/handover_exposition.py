"""Counts of prompts handed from prefill to decode engines, and their families for Prometheus.

Labels are closed enums: routing/disaggregation/core and handover/core name them. Counterpart: `exposition.py`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.gateway.accounting.histogram import Histogram
from headrace.telemetry import catalogue
from headrace.telemetry.catalogue import MetricSpec


@dataclass(slots=True, eq=False)
class HandoverCounts:
    """Of one model. Implements routing's `HandoverMeters`. Counts never shrink. Concurrency: event loop only."""

    decisions: dict[str, int] = field(default_factory=dict[str, int])
    ended: dict[str, int] = field(default_factory=dict[str, int])
    fallbacks: dict[str, int] = field(default_factory=dict[str, int])
    pairs: dict[str, int] = field(default_factory=dict[str, int])
    """As they are now; not a count of what was."""
    tokens: float = 0.0
    transferred_bytes: float = 0.0
    transfer_s: float = 0.0
    gain_s: float = 0.0
    gains: int = 0
    split_gain_s: float = 0.0
    split_gains: int = 0
    stages: dict[str, Histogram] = field(default_factory=dict[str, Histogram])

    def observe_stage(self, stage: str, seconds: float) -> None:
        """See `HandoverMeters`."""
        histogram = self.stages.get(stage)
        if histogram is None:
            histogram = self.stages[stage] = Histogram(catalogue.HANDOVER_STAGES.buckets)
        histogram.observe(seconds)


class HandoverBook:
    """Of all models that hand over."""

    def __init__(self) -> None:
        self.models: dict[str, HandoverCounts] = {}

    def of(self, model: str) -> HandoverCounts:
        return self.models.setdefault(model, HandoverCounts())


class HandoverCollector(Collector):
    """Makes metric families of them."""

    def __init__(self, sample: Callable[[], Mapping[str, HandoverCounts]]) -> None:
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        decisions, ended = _counter(catalogue.HANDOVER_DECISIONS), _counter(catalogue.HANDOVERS)
        fallbacks = _counter(catalogue.HANDOVER_FALLBACKS)
        tokens, sizes = _counter(catalogue.HANDOVER_TOKENS), _counter(catalogue.HANDOVER_BYTES)
        pairs = GaugeMetricFamily(
            catalogue.HANDOVER_PAIRS.name, catalogue.HANDOVER_PAIRS.description, labels=catalogue.HANDOVER_PAIRS.labels
        )
        spec = catalogue.HANDOVER_STAGES
        stages = HistogramMetricFamily(spec.name, spec.description, labels=spec.labels)
        for model, counts in self._sample().items():
            for family, by_label in (
                (decisions, counts.decisions), (ended, catalogue.HANDOVERS.with_zeros(counts.ended)),
                (fallbacks, catalogue.HANDOVER_FALLBACKS.with_zeros(counts.fallbacks)),
                (pairs, counts.pairs),
            ):  # fmt: skip
                for label, count in by_label.items():
                    family.add_metric([model, label], count)
            tokens.add_metric([model], counts.tokens)
            if counts.transferred_bytes:
                sizes.add_metric([model], counts.transferred_bytes)
            for stage, histogram in counts.stages.items():
                stages.add_metric([model, stage], histogram.cumulative(), sum_value=histogram.total)
        yield from (decisions, ended, fallbacks, pairs, tokens, sizes, stages)


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)
