"""Expressions are made of the catalogue: what is not in it cannot be asked for."""

import pytest

from headrace.fleet.observe.dashboard.promql import (
    per_minute,
    per_second,
    quantile,
    ratio,
    ratio_or_zero,
    series,
    state_number,
    summed,
    troubles,
)
from headrace.telemetry import catalogue


def test_a_selector_lets_through_what_was_chosen() -> None:
    """Gateway always, model, tenant and endpoint where the metric has the label; a replica is an endpoint."""
    assert series(catalogue.IN_FLIGHT) == 'headrace_in_flight_requests{instance=~"$instance"}'
    assert series(catalogue.TENANT_GPU) == (
        'headrace_tenant_gpu_seconds_total{instance=~"$instance",tenant=~"$tenant"}'
    )
    assert series(catalogue.REPLICA_PHASE, 'phase="ready"') == (
        'headrace_replica_phase{instance=~"$instance",replica=~"$endpoint",phase="ready"}'
    )
    assert series(catalogue.TTFT, 'le="2.0"', suffix="_bucket") == (
        'headrace_ttft_seconds_bucket{instance=~"$instance",model=~"$model",le="2.0"}'
    )


def test_a_label_that_a_metric_has_not_is_an_error() -> None:
    """In a selector and in a grouping, before anybody sees an empty panel."""
    with pytest.raises(ValueError, match="headrace_quota_refusals_total has no label model, but level, limit"):
        series(catalogue.QUOTA_REFUSALS, 'model="m"')
    with pytest.raises(ValueError, match="headrace_in_flight_requests has no label model, but none"):
        summed(catalogue.IN_FLIGHT, by=("model",))
    with pytest.raises(ValueError, match="has no label le"):
        series(catalogue.TTFT, 'le="2.0"', suffix="_count")


def test_a_histogram_is_asked_for_by_its_parts() -> None:
    """Its plain name has no series, and a counter has no buckets."""
    with pytest.raises(ValueError, match="headrace_ttft_seconds is a histogram"):
        series(catalogue.TTFT)
    with pytest.raises(ValueError, match="headrace_requests_total is a counter"):
        series(catalogue.REQUESTS, suffix="_bucket")


def test_expressions_read_as_prometheus_writes_them() -> None:
    """Rates by label, quantiles, shares, and the highest number of a state."""
    requests = 'headrace_retries_total{instance=~"$instance",model=~"$model"}'
    assert per_second(catalogue.RETRIES, by=("model",)) == f"sum by (model) (rate({requests}[$__rate_interval]))"
    assert per_minute(catalogue.RETRIES) == f"60 * sum(rate({requests}[$__rate_interval]))"
    assert troubles(catalogue.RETRIES) == f"60 * sum(rate({requests}[$__rate_interval])) > 0"
    assert quantile(0.5, catalogue.QUEUE, by=("model",)) == (
        "histogram_quantile(0.5, sum by (model, le) (rate("
        'headrace_queue_seconds_bucket{instance=~"$instance",model=~"$model"}[$__rate_interval]))) >= 0'
    )
    assert ratio("a", "b") == "a / (b > 0)"
    assert ratio_or_zero("a", "b") == "(a or 0 * b) / (b > 0)"
    state = 'headrace_endpoint_state{instance=~"$instance",endpoint=~"$endpoint",state='
    assert state_number(catalogue.ENDPOINT_STATE, "state", ("ready", "busy")) == (
        f'max by (endpoint) (1 * ({state}"ready"}} > bool 0) or 2 * ({state}"busy"}} > bool 0))'
    )
