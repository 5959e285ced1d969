"""What can be chosen at the top of the dashboard."""

from typing import Any

from headrace.fleet.observe.dashboard.promql import INSTANCE, VARIABLE_OF_LABEL
from headrace.telemetry import catalogue
from headrace.telemetry.spec import MetricSpec

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
"""Of every panel and variable: whichever is chosen."""
EVERYTHING = ".*"
"""What "All" stands for: series without the label too, and models that come while the page is open."""
FROM_LABELS: tuple[tuple[str, str, MetricSpec], ...] = (
    (INSTANCE, "Gateway", catalogue.IN_FLIGHT),
    ("model", "Model", catalogue.REQUESTS),
    ("tenant", "Tenant", catalogue.TENANT_TOKENS),
    ("endpoint", "Endpoint", catalogue.ENDPOINT_IN_FLIGHT),
)
"""Label, what it is called, and the metric whose values are offered."""
TTFT_BOUND_DEFAULT_S = 2.0
"""Chosen: readers of a chat begin to wonder about there."""


def variables() -> list[dict[str, Any]]:
    """Return the variables as Grafana's classic model has them."""
    return [_datasource(), *(_from_labels(*each) for each in FROM_LABELS), _ttft_bound()]


def names() -> set[str]:
    """Return what an expression may name with a dollar sign."""
    return {*VARIABLE_OF_LABEL.values(), INSTANCE, "ttft_bound"}


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "options": [],
        "hide": 0,
    }


def _from_labels(label: str, shown: str, spec: MetricSpec) -> dict[str, Any]:
    query = f"label_values({spec.name}, {label})"
    return {
        "name": label,
        "label": shown,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "sort": 7,
        "multi": True,
        "includeAll": True,
        "allValue": EVERYTHING,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "hide": 0,
    }


def _ttft_bound() -> dict[str, Any]:
    """A bound that a histogram has no bucket for cannot be judged: its buckets are what there is to choose from."""
    bounds = [(f"{bound:g} s", str(bound), bound == TTFT_BOUND_DEFAULT_S) for bound in catalogue.TTFT.buckets]
    options = [{"selected": chosen, "text": text, "value": value} for text, value, chosen in bounds]
    [current] = [option for option in options if option["selected"]]
    return {
        "name": "ttft_bound",
        "label": "TTFT bound",
        "type": "custom",
        "query": ", ".join(f"{text} : {value}" for text, value, _ in bounds),
        "multi": False,
        "includeAll": False,
        "current": current,
        "options": options,
        "hide": 0,
    }
