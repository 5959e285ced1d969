"""Metrics of tenants, quotas and budgets as families for Prometheus. Counterpart: `exposition.py`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.domain.quota import NANOS, LimitId
from headrace.gateway.accounting.tenant_counters import OTHER, TenantCounters
from headrace.telemetry import catalogue
from headrace.telemetry.catalogue import MetricSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSample:
    """One budget at the moment of a scrape."""

    limit_id: LimitId
    used_nanos: int
    amount_nanos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSample:
    """What the quota knows, at the moment of a scrape."""

    refusals: dict[tuple[str, str], int]
    """By level and limit."""
    budgets: tuple[BudgetSample, ...]
    marks: dict[tuple[LimitId, str], int]
    """How often a share of a budget was passed, by budget and share."""


class QuotaCollector(Collector):
    """Makes metric families of the tenants' counters and of the quota's state."""

    def __init__(self, tenants: TenantCounters, sample: Callable[[], QuotaSample]) -> None:
        self._tenants = tenants
        self._sample = sample

    def collect(self) -> Iterable[Metric]:
        yield from self._of_tenants()
        sample = self._sample()
        refusals = _counter(catalogue.QUOTA_REFUSALS)
        for (level, limit), count in sample.refusals.items():
            refusals.add_metric([level, limit], count)
        used, limits, marks = _gauge(catalogue.BUDGET_USED), _gauge(catalogue.BUDGET), _counter(catalogue.BUDGET_MARKS)
        for budget in sample.budgets:
            labels = [*_labels_of(budget.limit_id), self._tenants.currency]
            used.add_metric(labels, budget.used_nanos / NANOS)
            limits.add_metric(labels, budget.amount_nanos / NANOS)
        for (limit_id, share), count in sample.marks.items():
            marks.add_metric([*_labels_of(limit_id), share], count)
        yield from (refusals, used, limits, marks)

    def _of_tenants(self) -> Iterator[Metric]:
        tenants = self._tenants
        requests, tokens = _counter(catalogue.TENANT_REQUESTS), _counter(catalogue.TENANT_TOKENS)
        gpu, cost = _counter(catalogue.TENANT_GPU), _counter(catalogue.TENANT_COST)
        for name, counts in (*tenants.named.items(), (OTHER, tenants.other)):
            for outcome, count in catalogue.TENANT_REQUESTS.with_zeros(counts.ended).items():
                requests.add_metric([name, outcome], count)
            tokens.add_metric([name, "input"], counts.input_tokens)
            tokens.add_metric([name, "cached_input"], counts.cached_input_tokens)
            tokens.add_metric([name, "output"], counts.output_tokens)
            gpu.add_metric([name], counts.gpu_s)
            cost.add_metric([name, tenants.currency], counts.cost_nanos / NANOS)
        yield from (requests, tokens, gpu, cost)


def _labels_of(limit_id: LimitId) -> list[str]:
    return [limit_id.level.value, limit_id.name, limit_id.unit.value.removeprefix("budget_per_")]


def _counter(spec: MetricSpec) -> CounterMetricFamily:
    return CounterMetricFamily(spec.name.removesuffix("_total"), spec.description, labels=spec.labels)


def _gauge(spec: MetricSpec) -> GaugeMetricFamily:
    return GaugeMetricFamily(spec.name, spec.description, labels=spec.labels)
