"""All workers' metrics as one Prometheus text: the same series of several workers are added up."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from headrace.control_api.operations import ReplicaStatus
from headrace.domain.endpoint import ReplicaPhase
from headrace.telemetry import catalogue
from headrace.telemetry.routing_metrics import TOLD_BY_ENGINES

KNOWN_ALIKE = frozenset(
    {
        catalogue.BUDGET.name,
        catalogue.BUDGET_USED.name,
        catalogue.BUDGET_MARKS.name.removesuffix("_total"),
        catalogue.SHARING_LOST.name,
        catalogue.SHARING_MEMBERS.name,
        catalogue.HANDOVER_PAIRS.name,
        *(spec.name.removesuffix("_total") for spec in TOLD_BY_ENGINES),
    }
)
"""Every worker says these of the whole instance."""


def own_metrics(
    replicas: Sequence[ReplicaStatus], *, gateway_restarts: int, ledger_waiting_records: int
) -> list[Metric]:
    """What only the supervisor knows."""
    phases = GaugeMetricFamily(
        catalogue.REPLICA_PHASE.name, catalogue.REPLICA_PHASE.description, labels=catalogue.REPLICA_PHASE.labels
    )
    restarts = CounterMetricFamily(
        catalogue.REPLICA_RESTARTS.name.removesuffix("_total"),
        catalogue.REPLICA_RESTARTS.description,
        labels=catalogue.REPLICA_RESTARTS.labels,
    )
    for replica in replicas:
        for phase in ReplicaPhase:
            phases.add_metric([replica.endpoint, phase.value], float(replica.phase == phase.value))
        restarts.add_metric([replica.endpoint], replica.restarts)
    gateway = CounterMetricFamily(
        catalogue.GATEWAY_RESTARTS.name.removesuffix("_total"),
        catalogue.GATEWAY_RESTARTS.description,
        value=gateway_restarts,
    )
    ledger = GaugeMetricFamily(
        catalogue.LEDGER_LAG.name, catalogue.LEDGER_LAG.description, value=ledger_waiting_records
    )
    return [phases, restarts, gateway, ledger]


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def merge_metrics(texts: Sequence[str], own: Iterable[Metric] = ()) -> str:
    """Merge the workers' texts and append the supervisor's own metrics.

    Every series adds up: counters and histograms by nature, gauges because each counts what one worker holds. But of
    a moment in time the earliest counts, and of what all workers know alike the largest.
    """
    families: dict[str, Metric] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            known = families.get(family.name)
            families[family.name] = family if known is None else _added(known, family)
    registry = CollectorRegistry()
    registry.register(_Families([*families.values(), *own]))
    return generate_latest(registry).decode("utf-8")


def _added(one: Metric, other: Metric) -> Metric:
    values = {(sample.name, tuple(sorted(sample.labels.items()))): sample for sample in one.samples}
    pick = min if one.name.endswith("_time_seconds") else max if one.name in KNOWN_ALIKE else _sum
    for sample in other.samples:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        known = values.get(key)
        values[key] = sample if known is None else known._replace(value=pick(known.value, sample.value))
    merged = Metric(one.name, one.documentation, one.type)
    merged.samples = list(values.values())
    return merged


def _sum(one: float, other: float) -> float:
    return one + other
