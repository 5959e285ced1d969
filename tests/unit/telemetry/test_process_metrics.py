"""The gateway's own processes in the catalogue: named as the collector names them."""

import sys

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from headrace.telemetry.process_metrics import PROCESS_METRICS, PROCESS_NAMESPACE
from headrace.telemetry.spec import MetricKind


@pytest.mark.skipif(sys.platform != "linux", reason="the collector reads /proc")
def test_every_process_metric_that_is_exposed_is_in_the_catalogue() -> None:
    """With its kind; a metric that prometheus-client adds is found here."""
    registry = CollectorRegistry()
    ProcessCollector(namespace=PROCESS_NAMESPACE, registry=registry)
    exposed = {
        family.name + ("_total" if family.type == "counter" else ""): family.type for family in registry.collect()
    }
    assert exposed == {metric.name: metric.kind.value for metric in PROCESS_METRICS}
    assert {metric.kind for metric in PROCESS_METRICS} == {MetricKind.COUNTER, MetricKind.GAUGE}
