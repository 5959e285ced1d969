"""The catalogue of metrics keeps Prometheus' rules."""

import re

import pytest

from headrace.telemetry.catalogue import METRICS, MetricKind, MetricSpec

CALLERS_OWN = {"key", "request_id", "trace_id", "user", "path", "id", "ip"}
"""`tenant` is a declared name, and no more than quota.named_tenants of them."""


def test_names_are_unique() -> None:
    """No metric is listed twice."""
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_is_well_formed(metric: MetricSpec) -> None:
    """Name, suffix and unit agree, labels are bounded, the description is a sentence."""
    assert re.fullmatch(r"headrace_[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
    assert metric.name.removesuffix("_total").endswith("_seconds") == (metric.unit == "seconds")
    assert not CALLERS_OWN & set(metric.labels)
    assert metric.description.endswith(".")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_only_histograms_have_buckets_and_they_rise(metric: MetricSpec) -> None:
    """Positive, strictly rising upper bounds."""
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert all(bound > 0 for bound in metric.buckets)
